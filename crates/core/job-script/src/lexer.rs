//! Splits a script into the words of its directives, with their positions.

use super::error::{Findings, Position, closest_match, quote};

/// Maximum length of a physical line of a directive, in bytes.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// Maximum number of directives in a script.
pub const MAX_DIRECTIVES: usize = 4096;

/// Names of all directives.
pub(super) const DIRECTIVES: [&str; 7] = [
    "jobdw",
    "persistentdw",
    "swap",
    "stage_in",
    "stage_out",
    "create_persistent",
    "destroy_persistent",
];

/// The addressee of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// `#DW`: the burst buffer.
    Dw,
    /// `#BB`: Slurm.
    Bb,
}

impl Marker {
    pub fn text(self) -> &'static str {
        match self {
            Marker::Dw => "#DW",
            Marker::Bb => "#BB",
        }
    }

    fn of(line: &str) -> Option<(Marker, &str)> {
        [Marker::Dw, Marker::Bb].into_iter().find_map(|marker| {
            let rest = line.strip_prefix(marker.text())?;
            (rest.is_empty() || rest.starts_with([' ', '\t', '\\', '\r'])).then_some((marker, rest))
        })
    }
}

/// A word and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub text: &'a str,
    pub at: Position,
}

/// One directive line, its continuations joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectiveLine<'a> {
    pub marker: Marker,
    /// Position of the marker.
    pub at: Position,
    pub words: Vec<Word<'a>>,
    /// Its words could not be split; the error is already reported.
    pub malformed: bool,
}

/// The directives at the head of `text`, and the line numbers of directives after the head, which
/// are ignored.
pub(super) fn directive_lines<'a>(
    text: &'a str,
    findings: &mut Findings,
) -> (Vec<DirectiveLine<'a>>, Vec<u32>) {
    let mut found: Vec<DirectiveLine<'a>> = Vec::new();
    let mut unread = Vec::new();
    let bare = text.strip_prefix('\u{feff}');
    if bare.is_some() {
        findings.report(
            Position { line: 1, column: 1 },
            "a UTF-8 byte order mark before the first line, with which it is neither `#!` nor a comment",
            "save the script without one, such as with `sed -i '1s/^\\xEF\\xBB\\xBF//' SCRIPT`",
        );
    }
    let text = bare.unwrap_or(text);
    let mut lines = (1u32..).zip(text.split('\n'));
    while let Some((number, line)) = lines.next() {
        let at = Position { line: number, column: 1 };
        let bare = line.trim();
        if bare.is_empty() {
            continue;
        }
        if !bare.starts_with('#') {
            unread.extend(
                lines.filter(|(_, line)| Marker::of(line).is_some()).map(|(number, _)| number),
            );
            break;
        }
        let Some((marker, rest)) = Marker::of(line) else {
            report_near_miss(line, at, findings);
            continue;
        };
        if found.len() == MAX_DIRECTIVES {
            findings.report(
                at,
                format!("more than {MAX_DIRECTIVES} directives"),
                "stage a directory or a list instead of many files",
            );
            break;
        }
        let mut directive = DirectiveLine { marker, at, words: Vec::new(), malformed: false };
        let before = findings.count();
        let column = at.shift_right(marker.text().len());
        let more = split(rest, column, &mut directive.words, findings);
        if more {
            read_continuations(&mut directive, &mut lines, findings);
        }
        directive.malformed = findings.count() > before;
        found.push(directive);
    }
    (found, unread)
}

/// Appends the words of the lines that continue `directive`.
fn read_continuations<'a>(
    directive: &mut DirectiveLine<'a>,
    lines: &mut impl Iterator<Item = (u32, &'a str)>,
    findings: &mut Findings,
) {
    let marker = directive.marker;
    let mut more = true;
    while more {
        let Some((number, line)) = lines.next() else {
            findings.report(
                directive.at,
                "the directive ends with a backslash, but no line follows",
                "remove the backslash",
            );
            return;
        };
        let start = Position { line: number, column: 1 };
        let Some((rest, start)) = continuation(line, marker, start) else {
            findings.report(
                start,
                format!(
                    "line {} ends with a backslash, but this line does not continue it",
                    number - 1
                ),
                format!(
                    "continue with `key=value` words (`{}` or `#` may stand before them), or \
                     remove the backslash",
                    marker.text()
                ),
            );
            return;
        };
        more = split(rest, start, &mut directive.words, findings);
    }
}

/// The words of a continuation line: without a marker, after the same marker, or after `#`.
fn continuation(line: &str, marker: Marker, start: Position) -> Option<(&str, Position)> {
    let bare = line.trim_start_matches([' ', '\t']);
    let start = start.shift_right(line.len() - bare.len());
    if bare.trim().is_empty() {
        return None;
    }
    if !bare.starts_with('#') {
        return Some((bare, start));
    }
    if let Some((other, rest)) = Marker::of(bare) {
        return (other == marker).then_some((rest, start.shift_right(marker.text().len())));
    }
    let rest = bare.strip_prefix('#')?;
    rest.starts_with([' ', '\t']).then_some((rest, start.shift_right(1)))
}

/// Appends the words of `text`; returns whether a trailing backslash continues the line.
fn split<'a>(
    text: &'a str,
    start: Position,
    words: &mut Vec<Word<'a>>,
    findings: &mut Findings,
) -> bool {
    if text.len() > MAX_LINE_BYTES {
        findings.report(
            start,
            format!("the line is longer than {MAX_LINE_BYTES} bytes"),
            "break it with a backslash at the end of a line",
        );
        return false;
    }
    if let Some((index, found)) =
        text.chars().enumerate().find(|(_, c)| c.is_control() && *c != '\t')
    {
        if found == '\r' {
            findings.report(
                start.shift_right(index),
                "the line ends as in Windows (carriage return, line feed)",
                "convert the script, for instance with `dos2unix`",
            );
        } else {
            findings.report(
                start.shift_right(index),
                format!("control character {}", found.escape_unicode()),
                "remove it",
            );
        }
        return false;
    }
    let (text, more) = match text.strip_suffix('\\') {
        // Two trailing backslashes end Slurm's symbol replacement; they are no continuation.
        Some(head) if !head.ends_with('\\') => (head, true),
        _ => (text, false),
    };
    let mut column = 0;
    for piece in text.split([' ', '\t']) {
        let at = start.shift_right(column);
        column += piece.chars().count() + 1;
        if piece == "\\" {
            findings.report(
                at,
                "a backslash that is not the last character of its line",
                "remove what follows it (blanks too) to continue on the next line",
            );
        } else if !piece.is_empty() {
            words.push(Word { text: piece, at });
        }
    }
    more
}

/// Reports a comment that was certainly meant as a directive but would be ignored.
fn report_near_miss(line: &str, at: Position, findings: &mut Findings) {
    let bare = line.trim_start();
    let Some((head, rest)) = bare.get(..3).zip(bare.get(3..)) else {
        return;
    };
    let marker = match head.to_ascii_uppercase().as_str() {
        "#DW" => Marker::Dw,
        "#BB" => Marker::Bb,
        _ => return,
    };
    let Some(word) = rest.split_whitespace().next() else {
        return;
    };
    let glued = !rest.starts_with([' ', '\t']);
    let known = if glued {
        DIRECTIVES.iter().any(|d| word.starts_with(d))
    } else {
        DIRECTIVES.contains(&word) || closest_match(word, &DIRECTIVES).is_some()
    };
    if !known {
        return;
    }
    let place = at.shift_right(line.chars().count() - bare.chars().count());
    if place.column > 1 {
        findings.report(
            place,
            "a directive that does not begin in column 1 is not read",
            "remove the blanks before it",
        );
    } else if glued {
        findings.report(
            place.shift_right(3),
            format!("no blank between {} and {}", quote(head), quote(word)),
            format!("write `{} {word}`", marker.text()),
        );
    } else {
        findings.report(
            place,
            format!("{} is not a directive's marker", quote(head)),
            format!("write `{}`", marker.text()),
        );
    }
}
