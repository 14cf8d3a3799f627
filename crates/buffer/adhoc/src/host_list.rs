//! Lists of hosts as batch systems write them.

use std::path::Path;

/// Maximum number of hosts in a list.
pub const MAX_HOSTS: usize = 1024;

/// Parses a list in Slurm's syntax, such as `n[1-3,7],login1`. Hosts that are repeated count once,
/// in the order in which they are first named.
///
/// # Errors
/// The wrong part and the remedy.
pub fn parse(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for part in split_at_commas(text)? {
        expand(part, String::new(), &mut hosts)?;
    }
    distinct(hosts)
}

/// Reads a file with a host in each line, of which the first word counts, as `$PBS_NODEFILE` is.
///
/// # Errors
/// The file cannot be read, or names no host.
pub fn read_file(path: &Path) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let first_words = text.lines().filter_map(|line| line.split_whitespace().next());
    let hosts = first_words.map(|host| check_name(host).map(|()| host.to_owned()));
    let hosts = hosts.collect::<Result<Vec<String>, String>>();
    hosts.and_then(distinct).map_err(|reason| format!("{}: {reason}", path.display()))
}

/// The parts of a list: commas in brackets do not separate.
fn split_at_commas(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(format!("`{text}`: the brackets do not match; write `n[1-3,7]`"));
        }
    }
    if depth != 0 {
        return Err(format!("`{text}`: `[` without `]`; write `n[1-3,7]`"));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// Appends the hosts of `rest`, a part of a list, each after `head`.
fn expand(rest: &str, head: String, hosts: &mut Vec<String>) -> Result<(), String> {
    let Some((before, tail)) = rest.split_once('[') else {
        let name = head + rest;
        check_name(&name)?;
        if hosts.len() >= MAX_HOSTS {
            return Err(format!("more than {MAX_HOSTS} hosts; name fewer"));
        }
        hosts.push(name);
        return Ok(());
    };
    let Some((ranges, after)) = tail.split_once(']') else {
        return Err(format!("`{rest}`: `[` without `]`; write `n[1-3,7]`"));
    };
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
            true => digits.parse::<u64>().ok(),
            false => None,
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            return Err(format!("`{range}` is not a range of numbers; write `n[1-3,7]`"));
        };
        if to < from || to - from >= MAX_HOSTS as u64 {
            return Err(format!(
                "`{range}` is not an ascending range of at most {MAX_HOSTS} numbers"
            ));
        }
        // Leading zeros of the first number give the width, as in `n[008-012]`.
        let width = first.len();
        for value in from..=to {
            expand(after, format!("{head}{before}{value:0width$}"), hosts)?;
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_option = name.starts_with('-');
    match !name.is_empty() && name.len() <= 255 && !is_option && name.chars().all(plain) {
        true => Ok(()),
        false => Err(format!("`{name}` is not the name of a host; write `n1,n2` or `n[1-2]`")),
    }
}

fn distinct(hosts: Vec<String>) -> Result<Vec<String>, String> {
    let mut seen = std::collections::BTreeSet::new();
    let hosts: Vec<String> = hosts.into_iter().filter(|host| seen.insert(host.clone())).collect();
    match hosts.len() {
        0 => Err("there is no host in it".to_owned()),
        1..=MAX_HOSTS => Ok(hosts),
        _ => Err(format!("more than {MAX_HOSTS} hosts; name fewer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_expanded_in_order_with_their_leading_zeros() {
        let list = |text| parse(text).unwrap().join(" ");
        assert_eq!(list("n[1-3,7],login1"), "n1 n2 n3 n7 login1");
        assert_eq!(list("n[008-011]"), "n008 n009 n010 n011");
        assert_eq!(list("r[1-2]n[1-2]-ib"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib");
        assert_eq!(list("a,b,a"), "a b");
        assert_eq!(list("10.77.0.1"), "10.77.0.1");
    }

    #[test]
    fn wrong_lists_are_refused_with_the_part_that_is_wrong() {
        let refused = |text| parse(text).unwrap_err();
        for (text, part) in [
            ("", "``"),
            ("n1,,n2", "``"),
            ("n[1-3", "`[` without `]`"),
            ("n1-3]", "do not match"),
            ("n[[1]]", "do not match"),
            ("n[3-1]", "`3-1`"),
            ("n[a]", "`a`"),
            ("n[]", "``"),
            ("n[1-99999999999]", "ascending range of at most"),
            ("n[1-1000]m[1-1000]", "more than 1024"),
            ("n[99999999999999999999]", "not a range"),
            ("-oProxyCommand=x", "not the name of a host"),
            ("n 1", "`n 1`"),
        ] {
            let reason = refused(text);
            assert!(reason.contains(part), "{text}: {reason}");
        }
    }

    #[test]
    fn file_with_a_line_for_each_slot_names_each_host_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "n1\nn1\n\nn2 slots=4\n").unwrap();
        assert_eq!(read_file(file.path()).unwrap(), ["n1", "n2"]);
        std::fs::write(file.path(), "\n").unwrap();
        assert!(read_file(file.path()).unwrap_err().contains("no host"));
    }
}
