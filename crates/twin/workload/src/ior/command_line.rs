//! The grammar of IOR's command line.
//!
//! `-b 4m`, `-b4m`, `-b=4m`; flags may be joined (`-wrk`, `-Fb 4m`) and repeated (`-vv`), or set to
//! a number (`-k=0`); long options are `--name`, `--name=value`, `--name value`.

use super::builder::IorBuilder;
use super::error::{IorError, OptionLocation};
use super::options::{by_letter, by_long, suggest_letter, suggest_name};
use super::{Ior, script};

/// Reads a command line: one test, or those of the script that `-f` names.
pub(super) fn parse(arguments: &[String]) -> Result<Vec<Ior>, IorError> {
    let mut draft = IorBuilder::default();
    let mut at = 0;
    while at < arguments.len() {
        at += 1 + argument(&mut draft, arguments, at)?;
    }
    match draft.script.take() {
        Some((file, place)) => script::read(&file, &place, draft),
        None => Ok(vec![draft.finish(0)?]),
    }
}

/// Reads the argument at `at`; how many of the following ones it has used up.
fn argument(draft: &mut IorBuilder, arguments: &[String], at: usize) -> Result<usize, IorError> {
    let place = OptionLocation::Argument(at + 1);
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
            return Err(IorError::Unknown {
                option: name.to_string(),
                place,
                suggestion: suggest_name(long),
            });
        };
        let value = if spec.value.is_some() {
            joined.or(following)
        } else {
            joined
        };
        draft.apply(spec, name, value, &place)?;
        return Ok(usize::from(spec.value.is_some() && joined.is_none()));
    }
    let letters = match name.strip_prefix('-') {
        Some(letters) if !letters.is_empty() => letters,
        _ => {
            return Err(IorError::Unknown {
                option: whole.to_string(),
                place,
                suggestion: "options begin with - and IOR takes no other arguments".to_string(),
            });
        }
    };
    for (i, letter) in letters.char_indices() {
        let option = format!("-{letter}");
        let rest = &letters[i + letter.len_utf8()..];
        let Some(spec) = by_letter(letter) else {
            let option = if letters.len() > letter.len_utf8() {
                format!("{option} in {name}")
            } else {
                option
            };
            return Err(IorError::Unknown {
                option,
                place,
                suggestion: suggest_letter(letter),
            });
        };
        if spec.value.is_none() {
            draft.apply(
                spec,
                &option,
                if rest.is_empty() { joined } else { None },
                &place,
            )?;
            continue;
        }
        // What follows the letter is its value: `-b4m`, `-o/path/a=b`, or the next argument.
        let value = if rest.is_empty() {
            joined.or(following)
        } else {
            Some(&whole[1 + i + letter.len_utf8()..])
        };
        draft.apply(spec, &option, value, &place)?;
        return Ok(usize::from(rest.is_empty() && joined.is_none()));
    }
    Ok(0)
}
