//! `--nodes`: a count, a list, or a range of doublings.

use std::fmt;
use std::str::FromStr;

/// The node counts of a study: ascending, without duplicates, at least one, none zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCounts(pub Vec<u32>);

/// Maximum number of points in one study.
const MAX_POINTS: usize = 1024;

impl FromStr for NodeCounts {
    type Err = String;

    /// Parses `512`, `1,16,64`, `1..8192` (1, 2, 4 … 8192; the end is always included) and
    /// combinations: `1..256,384,512`. `..=` means the same as `..`.
    fn from_str(text: &str) -> Result<NodeCounts, String> {
        let mut counts = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part.split_once("..") {
                None => counts.push(count(part)?),
                Some((first, last)) => {
                    let first = count(first.trim())?;
                    let last = count(last.strip_prefix('=').unwrap_or(last).trim())?;
                    if first > last {
                        return Err(format!(
                            "the range {part} runs backwards; write {last}..{first}"
                        ));
                    }
                    let mut n = first;
                    while n < last {
                        counts.push(n);
                        n = n.saturating_mul(2);
                    }
                    counts.push(last);
                }
            }
        }
        counts.sort_unstable();
        counts.dedup();
        if counts.len() > MAX_POINTS {
            return Err(format!("{} node counts; a study has at most {MAX_POINTS}", counts.len()));
        }
        Ok(NodeCounts(counts))
    }
}

fn count(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(0) => Err("a job needs at least one node; counts start at 1".to_string()),
        Ok(n) => Ok(n),
        Err(_) => Err(format!(
            "{text:?} is not a node count; write one as 512, several as 1,16,64, doublings as 1..8192"
        )),
    }
}

impl NodeCounts {
    /// The largest count.
    pub fn largest(&self) -> u32 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl fmt::Display for NodeCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Vec<u32> {
        text.parse::<NodeCounts>().unwrap().0
    }

    #[test]
    fn node_counts_from_single_list_and_range() {
        assert_eq!(counts("512"), [512]);
        assert_eq!(counts("64, 1,16,16"), [1, 16, 64]);
        assert_eq!(counts("1..8"), [1, 2, 4, 8]);
        assert_eq!(counts("1..=8"), [1, 2, 4, 8]);
        assert_eq!(counts("1..8192").len(), 14);
        assert_eq!(counts("3..50"), [3, 6, 12, 24, 48, 50]);
        assert_eq!(counts("1..4,6"), [1, 2, 4, 6]);
        assert_eq!(counts("2147483648..4294967295"), [2147483648, 4294967295]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "[0-9.,= x-]{0,12}") {
            if let Ok(counts) = text.parse::<NodeCounts>() {
                assert!(!counts.0.is_empty());
                assert!(counts.0[0] > 0);
                assert!(counts.0.windows(2).all(|w| w[0] < w[1]));
                assert_eq!(counts.to_string().parse::<NodeCounts>().unwrap(), counts);
            }
        }
    }

    #[test]
    fn invalid_node_counts_are_refused_with_the_reason() {
        for (text, word) in [
            ("0", "at least one"),
            ("", "not a node count"),
            ("8..1", "1..8"),
            ("-4", "not a node count"),
            ("1..x", "\"x\""),
            ("1,,2", "not a node count"),
            ("1..4..8", "not a node count"),
            ("99999999999", "not a node count"),
        ] {
            let error = text.parse::<NodeCounts>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
