//! The directives of a script.

use std::fmt;

use forebay_job_script::{MAX_LINE_BYTES, Position, ScriptErrors};
use serde::{Deserialize, Serialize};

use crate::location::Location;
use crate::{Findings, quote, suggestion};

/// Maximum number of directives in a script.
pub const MAX_DIRECTIVES: usize = 1024;

const MARKER: &str = "#NORNS";
const DIRECTIVES: [&str; 3] = ["stage_in", "stage_out", "persist"];
const ACTIONS: [&str; 4] = ["store", "delete", "share", "unshare"];

/// Direction of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageDirection {
    /// Before the job's program starts.
    In,
    /// After it has ended.
    Out,
}

/// `stage_in` or `stage_out`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Line of the script.
    pub line: u32,
    /// Direction.
    pub direction: StageDirection,
    /// The source.
    pub origin: Location,
    /// The target.
    pub destination: Location,
    /// Path of the mapping file; without one, every node copies everything.
    pub mapping: Option<String>,
}

/// The action of `persist`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PersistAction {
    /// Data stay on their nodes when the workflow has ended.
    Store,
    /// They are removed.
    Delete,
    /// Another user or group may read them.
    Share,
    /// No longer.
    Unshare,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Principal {
    /// A user's name.
    User(String),
    /// A group's name, written `group:NAME`.
    Group(String),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::User(name) => f.write_str(name),
            Principal::Group(name) => write!(f, "group:{name}"),
        }
    }
}

impl Principal {
    /// Parses `NAME` or `group:NAME`. An error is a problem and its remedy.
    pub fn parse(text: &str) -> Result<Principal, (String, String)> {
        let (name, group) = match text.strip_prefix("group:") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.starts_with('-') || !name.chars().all(allowed) {
            let problem = format!("{} is no name of a user or group", quote(text));
            return Err((problem, "write `ada`, or `group:climate` for a group".to_owned()));
        }
        let name = name.to_owned();
        Ok(if group { Principal::Group(name) } else { Principal::User(name) })
    }
}

/// `persist`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persist {
    /// Line of the script.
    pub line: u32,
    /// The action.
    pub action: PersistAction,
    /// The data.
    pub location: Location,
    /// The user or group: always that of `share` and `unshare`; the owner of others, if named.
    pub principal: Option<Principal>,
}

/// All directives of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NornsScript {
    /// Stages in the order of the script.
    pub stages: Vec<Stage>,
    /// `persist` directives in the order of the script.
    pub persists: Vec<Persist>,
}

/// A word and its position.
struct Word<'a> {
    text: &'a str,
    at: Position,
}

impl NornsScript {
    /// Parses the directives at the head of a script.
    pub fn parse(text: &str) -> Result<NornsScript, ScriptErrors> {
        let mut findings = Findings::default();
        let mut script = NornsScript::default();
        let mut in_head = true;
        let mut count = 0;
        for (line, content) in (1u32..).zip(text.split('\n')) {
            let at = Position { line, column: 1 };
            let bare = content.trim();
            in_head &= bare.is_empty() || bare.starts_with('#');
            let Some(rest) = directive_text(content, at, in_head, &mut findings) else {
                continue;
            };
            count += 1;
            if count > MAX_DIRECTIVES {
                let problem = format!("more than {MAX_DIRECTIVES} directives");
                findings.report(at, problem, "stage directories, or use a mapping file");
                break;
            }
            let Some(words) = words_of(rest, at, &mut findings) else { continue };
            script.add(&words, at, &mut findings);
        }
        findings.finish(script)
    }

    fn add(&mut self, words: &[Word<'_>], at: Position, findings: &mut Findings) {
        let Some((name, arguments)) = words.split_first() else {
            findings.report(at, "a directive without a name", suggestion("", &DIRECTIVES));
            return;
        };
        match name.text {
            "stage_in" => self.add_stage(StageDirection::In, arguments, at, findings),
            "stage_out" => self.add_stage(StageDirection::Out, arguments, at, findings),
            "persist" => self.add_persist(arguments, at, findings),
            other => {
                let problem = format!("{} is not a directive", quote(other));
                findings.report(name.at, problem, suggestion(other, &DIRECTIVES));
            }
        }
    }

    fn add_stage(
        &mut self,
        direction: StageDirection,
        words: &[Word<'_>],
        at: Position,
        findings: &mut Findings,
    ) {
        let (origin, destination, mapping) = match words {
            [origin, destination] => (origin, destination, None),
            [origin, destination, mapping] => (origin, destination, Some(mapping.text.to_owned())),
            _ => {
                let problem = format!(
                    "a stage has two locations and at most one mapping file, not {} words",
                    words.len()
                );
                let remedy = "write `#NORNS stage_in lustre://mesh nvme0://mesh mapping.dat`";
                findings.report(at, problem, remedy);
                return;
            }
        };
        let parsed = (
            findings.accept(origin.at, Location::parse(origin.text)),
            findings.accept(destination.at, Location::parse(destination.text)),
        );
        if let (Some(origin), Some(destination)) = parsed {
            let stage = Stage { line: at.line, direction, origin, destination, mapping };
            self.stages.push(stage);
        }
    }

    fn add_persist(&mut self, words: &[Word<'_>], at: Position, findings: &mut Findings) {
        let (action, location, principal) = match words {
            [action, location] => (action, location, None),
            [action, location, principal] => (action, location, Some(principal)),
            _ => {
                let remedy = "write `#NORNS persist store nvme0://tables`";
                findings.report(
                    at,
                    "`persist` has an action, a location and at most one user",
                    remedy,
                );
                return;
            }
        };
        let parsed_action = match action.text {
            "store" => Some(PersistAction::Store),
            "delete" => Some(PersistAction::Delete),
            "share" => Some(PersistAction::Share),
            "unshare" => Some(PersistAction::Unshare),
            other => {
                let problem = format!("{} is not an action of `persist`", quote(other));
                findings.report(action.at, problem, suggestion(other, &ACTIONS));
                None
            }
        };
        let needs_user =
            matches!(parsed_action, Some(PersistAction::Share | PersistAction::Unshare));
        if needs_user && principal.is_none() {
            let problem = format!("`persist {}` names no user", action.text);
            findings.report(location.at, problem, "append `ada`, or `group:climate` for a group");
            return;
        }
        let place = findings.accept(location.at, Location::parse(location.text));
        let is_name = |path: &str| !path.is_empty() && !path.contains('/');
        if place.as_ref().is_some_and(|place| !is_name(&place.path)) {
            let problem = "persistent data are a file or directory at the top of a dataspace";
            findings.report(location.at, problem, "write such as `nvme0://tables`");
            return;
        }
        let named = match principal {
            Some(word) => match findings.accept(word.at, Principal::parse(word.text)) {
                Some(principal) => Some(principal),
                None => return,
            },
            None => None,
        };
        if let (Some(action), Some(location)) = (parsed_action, place) {
            self.persists.push(Persist { line: at.line, action, location, principal: named });
        }
    }
}

/// The text after the marker, if the line is a directive of the head. Reports lines that were meant
/// as directives, but would not be read.
fn directive_text<'a>(
    line: &'a str,
    at: Position,
    in_head: bool,
    findings: &mut Findings,
) -> Option<&'a str> {
    let bare = line.trim_start();
    let (head, rest) = (bare.get(..MARKER.len())?, bare.get(MARKER.len()..)?);
    if !head.eq_ignore_ascii_case(MARKER) {
        return None;
    }
    let word = rest.split_whitespace().next();
    if head != MARKER || !rest.starts_with([' ', '\t']) || bare.len() != line.len() {
        // A comment that happens to begin alike is not a directive.
        if word.is_some_and(|word| DIRECTIVES.contains(&word)) {
            let problem =
                "a directive that is not read: it does not begin with `#NORNS ` in column 1";
            findings.report(at, problem, "write `#NORNS` and a blank at the beginning of the line");
        }
        return None;
    }
    if !in_head {
        if word.is_some_and(|word| DIRECTIVES.contains(&word)) {
            let problem = "a directive after the first command of the script is not read";
            findings.report(at, problem, "move it to the head of the script");
        }
        return None;
    }
    Some(rest)
}

fn words_of<'a>(rest: &'a str, at: Position, findings: &mut Findings) -> Option<Vec<Word<'a>>> {
    if rest.len() > MAX_LINE_BYTES {
        let problem = format!("the line is longer than {MAX_LINE_BYTES} bytes");
        findings.report(at, problem, "use shorter paths");
        return None;
    }
    let start = at.shift_right(MARKER.len());
    if let Some((index, c)) = rest.chars().enumerate().find(|(_, c)| c.is_control() && *c != '\t') {
        let remedy = if c == '\r' { "convert the script with `dos2unix`" } else { "remove it" };
        let problem = format!("control character {}", c.escape_unicode());
        findings.report(start.shift_right(index), problem, remedy);
        return None;
    }
    let mut words = Vec::new();
    let mut column = 0;
    for text in rest.split([' ', '\t']) {
        if !text.is_empty() {
            words.push(Word { text, at: start.shift_right(column) });
        }
        column += text.chars().count() + 1;
    }
    Some(words)
}
