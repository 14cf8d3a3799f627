//! The mark of a workflow job: its administrator's comment in Slurm, which users cannot set.

use std::fmt;

use serde::{Deserialize, Serialize};

/// First word of a mark.
const WORD: &str = "forebay-workflow";

/// The place of a job in its workflow, as requested at submission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// `--workflow-start`.
    pub start: bool,
    /// `--workflow-end`.
    pub end: bool,
    /// The user submitted the job with `--hold`; it is not released for the user.
    pub held: bool,
    /// Jobs of `--workflow-prior-dependency`.
    pub prior: Vec<u32>,
}

impl Mark {
    /// The mark in an administrator's comment, if there is one.
    pub fn parse(comment: &str) -> Option<Mark> {
        let mut words = comment.split_whitespace().skip_while(|word| *word != WORD);
        words.next()?;
        let mut mark = Mark::default();
        for word in words {
            match word.split_once('=') {
                Some(("start", value)) => mark.start = value == "1",
                Some(("end", value)) => mark.end = value == "1",
                Some(("held", value)) => mark.held = value == "1",
                Some(("prior", value)) => {
                    mark.prior = value.split(',').filter_map(|id| id.parse().ok()).collect();
                }
                // Another program's comment follows.
                _ => break,
            }
        }
        mark.prior.sort_unstable();
        mark.prior.dedup();
        Some(mark)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bit = u8::from;
        write!(
            f,
            "{WORD} start={} end={} held={}",
            bit(self.start),
            bit(self.end),
            bit(self.held)
        )?;
        let prior: Vec<String> = self.prior.iter().map(u32::to_string).collect();
        if prior.is_empty() { Ok(()) } else { write!(f, " prior={}", prior.join(",")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_found_in_a_comment_and_survives_formatting() {
        let mark = Mark { start: false, end: true, held: false, prior: vec![5656, 5666] };
        assert_eq!(Mark::parse(&mark.to_string()), Some(mark.clone()));
        let comment = format!("checked {mark} by the site");
        assert_eq!(Mark::parse(&comment), Some(mark));
        assert_eq!(Mark::parse("checked"), None);
    }
}
