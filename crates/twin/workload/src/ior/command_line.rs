//! IOR's command line.
//!
//! `-b 4m`, `-b4m`, `-b=4m`; flags may be joined (`-wrk`, `-Fb 4m`), repeated (`-vv`), or set to
//! a number (`-k=0`); long options are `--name`, `--name=value`, `--name value`.

use super::builder::{Given, IorBuilder};
use super::check::finish_test;
use super::error::{IorError, OptionLocation};
use super::options::{by_letter, by_long, suggest_letter, suggest_name};
use super::script::read_script;
use super::spec::Ior;

impl Ior {
    /// Parses an IOR command line, without the program's name: one test, or those of a script
    /// (`-f`).
    ///
    /// # Errors
    /// The first error, with its location and remedy; [`IorError::Help`] for `-h`.
    pub fn parse(arguments: &[String]) -> Result<Vec<Ior>, IorError> {
        let mut builder = IorBuilder::default();
        each_option(arguments, |given| builder.apply(&given))?;
        match builder.script.take() {
            Some((file, location)) => read_script(&file, &location, builder),
            None => Ok(vec![finish_test(builder, 0)?]),
        }
    }
}

/// The value that a command line gives to the option of a letter, the last one if it has several. `None` without
/// one, for a flag, and for a line that is no command line of IOR.
pub fn value_given(arguments: &[String], letter: char) -> Option<String> {
    let mut found = None;
    let read = each_option(arguments, |Given { spec, value, .. }| {
        if spec.short == Some(letter) && spec.value.is_some() {
            found = value.map(str::to_owned);
        }
        Ok(())
    });
    found.filter(|_| read.is_ok())
}

/// Calls `apply` with each option of a command line, in order.
fn each_option(
    arguments: &[String],
    mut apply: impl FnMut(Given<'_>) -> Result<(), IorError>,
) -> Result<(), IorError> {
    let mut at = 0;
    while at < arguments.len() {
        at += 1 + parse_argument(&mut apply, arguments, at)?;
    }
    Ok(())
}

/// Parses the argument at `at`; returns the number of following arguments that it used.
fn parse_argument(
    apply: &mut impl FnMut(Given<'_>) -> Result<(), IorError>,
    arguments: &[String],
    at: usize,
) -> Result<usize, IorError> {
    let location = OptionLocation::Argument(at + 1);
    let whole = arguments[at].as_str();
    let (name, joined) = match whole.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (whole, None),
    };
    let following = arguments.get(at + 1).map(String::as_str);
    if name == "-h" || name == "--help" {
        return Err(IorError::Help);
    }
    if let Some(long) = name.strip_prefix("--") {
        let Some(spec) = by_long(long) else {
            return Err(location.unknown(name, &suggest_name(long)));
        };
        let value = if spec.value.is_some() { joined.or(following) } else { joined };
        apply(Given { spec, option: name, value, location: &location })?;
        return Ok(usize::from(spec.value.is_some() && joined.is_none()));
    }
    let Some(letters) = name.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
        let suggestion = "options begin with -, and IOR takes no other arguments";
        return Err(location.unknown(whole, suggestion));
    };
    parse_letters(apply, whole, letters, joined, following, &location)
}

/// Parses joined letters; returns the number of following arguments that they used.
fn parse_letters(
    apply: &mut impl FnMut(Given<'_>) -> Result<(), IorError>,
    whole: &str,
    letters: &str,
    joined: Option<&str>,
    following: Option<&str>,
    location: &OptionLocation,
) -> Result<usize, IorError> {
    for (i, letter) in letters.char_indices() {
        let option = format!("-{letter}");
        let rest = &letters[i + letter.len_utf8()..];
        let Some(spec) = by_letter(letter) else {
            let alone = letters.len() == letter.len_utf8();
            let option = if alone { option } else { format!("{option} in -{letters}") };
            return Err(location.unknown(&option, &suggest_letter(letter)));
        };
        if spec.value.is_none() {
            let value = if rest.is_empty() { joined } else { None };
            apply(Given { spec, option: &option, value, location })?;
            continue;
        }
        // The value is the text after the letter (`-b4m`, `-o/path/a=b`) or the next argument.
        let value = if rest.is_empty() {
            joined.or(following)
        } else {
            Some(&whole[1 + i + letter.len_utf8()..])
        };
        apply(Given { spec, option: &option, value, location })?;
        return Ok(usize::from(rest.is_empty() && joined.is_none()));
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_an_option_is_found_in_each_form() {
        for (line, value) in [
            ("-w -t 1m -F", Some("1m")),
            ("-w -t1m", Some("1m")),
            ("-wFt=1m", Some("1m")),
            ("-wFt 1m -b 4t", Some("1m")),
            ("-t 1m -t 2m", Some("2m")),
            ("-w -b 1m -o -t", None),
            ("-o/path/-t", None),
            ("-t 1m --frobnicate", None),
            ("", None),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(value_given(&words, 't').as_deref(), value, "{line}");
        }
        let flag = ["-F".to_owned()];
        assert_eq!(value_given(&flag, 'F'), None);
    }
}
