//! Reports: one self-contained HTML file for each run, in a light and a dark theme.

mod collective;
mod darshan;
mod interference;
mod ior;
mod jobs;
mod parts;
mod traffic;

pub use collective::collective;
pub use darshan::darshan;
pub use interference::interference;
pub use ior::ior;
pub(crate) use jobs::jobs;
pub use traffic::traffic;

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Everything a run was given: the last section of a report, and the inputs in a run directory.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The machine as it was resolved, with the source of every number.
    pub machine_text: String,
    /// Name and text of the files that the machine was read from; the machine file is
    /// `machine.toml`.
    pub machine_files: Vec<(String, String)>,
    /// Settings and their values, with defaults filled in.
    pub settings: Vec<(&'static str, String)>,
}

impl Inputs {
    /// The command line, quoted for a shell.
    pub fn command_line(&self) -> String {
        let is_plain = |word: &str| {
            !word.is_empty()
                && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
        };
        let words: Vec<String> = self
            .command
            .iter()
            .map(|word| {
                if is_plain(word) {
                    word.clone()
                } else {
                    format!("'{}'", word.replace('\'', "'\\''"))
                }
            })
            .collect();
        words.join(" ")
    }
}

/// A report under construction.
#[derive(Debug)]
pub(crate) struct Page {
    title: String,
    lead: String,
    sections: Vec<Markup>,
}

impl Page {
    pub(crate) fn new(title: String, lead: String) -> Page {
        Page { title, lead, sections: Vec::new() }
    }

    pub(crate) fn add_section(&mut self, id: &str, title: &str, content: Markup) {
        self.sections.push(html! {
            section id=(id) {
                h2 { (title) }
                (content)
            }
        });
    }

    /// The whole document. Its content security policy forbids every network request.
    pub(crate) fn into_document(self) -> String {
        let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:";
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (self.title) }
                        p { (self.lead) }
                    }
                    main { @for section in &self.sections { (section) } }
                    div #tip role="status" hidden {}
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
        .into_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_quoted_for_a_shell() {
        let inputs = Inputs {
            command: ["forebay", "--nodes", "1..8", "it's", "a b", ""].map(String::from).to_vec(),
            machine_text: String::new(),
            machine_files: vec![],
            settings: vec![],
        };
        assert_eq!(inputs.command_line(), r"forebay --nodes 1..8 'it'\''s' 'a b' ''");
    }

    #[test]
    fn page_contains_no_external_reference() {
        let document = Page::new("<b>".into(), "&".into()).into_document();
        assert!(document.contains("<h1>&lt;b&gt;</h1>"));
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!document.contains(word), "{word}");
        }
    }
}
