//! The report: one HTML file that needs nothing else, in light and dark.

mod interference;
mod ior;
mod parts;
mod traffic;

pub use interference::interference;
pub use ior::ior;
pub use traffic::traffic;

use crate::plot::svg::escape;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// What a run was given; the last section of every report and the inputs in a run directory.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// The machine file's text.
    pub machine_text: String,
    /// Name and text of the files that the machine was read from; the machine file is
    /// `machine.toml`.
    pub machine_files: Vec<(String, String)>,
    /// Settings and their values, as they were after defaults were filled in.
    pub settings: Vec<(String, String)>,
}

impl Inputs {
    /// The command line as it could be pasted into a shell.
    pub fn command_line(&self) -> String {
        let plain = |w: &str| {
            !w.is_empty()
                && w.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c))
        };
        let words: Vec<String> = self
            .command
            .iter()
            .map(|w| {
                if plain(w) {
                    w.clone()
                } else {
                    format!("'{}'", w.replace('\'', "'\\''"))
                }
            })
            .collect();
        words.join(" ")
    }
}

/// A page that is being put together.
#[derive(Debug)]
pub(crate) struct Page {
    title: String,
    lead: String,
    body: String,
}

impl Page {
    pub(crate) fn new(title: &str, lead: &str) -> Page {
        Page {
            title: title.to_string(),
            lead: lead.to_string(),
            body: String::new(),
        }
    }

    /// Adds a section; `html` must be well-formed and escaped.
    pub(crate) fn section(&mut self, id: &str, title: &str, html: &str) {
        self.body.push_str(&format!(
            "<section id=\"{id}\">\n<h2>{}</h2>\n{html}</section>\n",
            escape(title)
        ));
    }

    /// The whole document.
    pub(crate) fn document(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header>\n<h1>{title}</h1>\n<p>{lead}</p>\n</header>\n<main>\n{body}</main>\n\
             <div id=\"tip\" role=\"status\" hidden></div>\n<script>\n{SCRIPT}</script>\n\
             </body>\n</html>\n",
            title = escape(&self.title),
            lead = escape(&self.lead),
            body = self.body,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_can_be_pasted() {
        let inputs = Inputs {
            command: ["forebay", "--nodes", "1..8", "it's", "a b", ""]
                .map(String::from)
                .to_vec(),
            machine_text: String::new(),
            machine_files: vec![],
            settings: vec![],
        };
        assert_eq!(
            inputs.command_line(),
            r"forebay --nodes 1..8 'it'\''s' 'a b' ''"
        );
    }

    #[test]
    fn a_page_asks_the_network_for_nothing() {
        let document = Page::new("<b>", "&").document();
        assert!(document.contains("<h1>&lt;b&gt;</h1>"));
        for word in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!document.contains(word), "{word}");
        }
    }
}
