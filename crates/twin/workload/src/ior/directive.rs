//! Directives of scripts and of `-O`: `name=value`, joined by commas.

use super::error::{IorError, OptionLocation};
use super::options::{self, OptionSpec};

/// One directive.
pub(super) struct Directive<'a> {
    pub(super) spec: &'static OptionSpec,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    pub(super) location: OptionLocation,
}

/// The directives of `text`, in order. `location` gives the location of a column of the text, from 1.
pub(super) fn parse_directives<'a>(
    text: &'a str,
    location: &dyn Fn(usize) -> OptionLocation,
) -> impl Iterator<Item = Result<Directive<'a>, IorError>> {
    let mut column = 1;
    text.split(',').map(move |part| {
        let indent = part.chars().take_while(|c| c.is_whitespace()).count();
        let directive = parse_directive(part.trim(), location(column + indent));
        column += part.chars().count() + 1;
        directive
    })
}

fn parse_directive(text: &str, location: OptionLocation) -> Result<Directive<'_>, IorError> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(location.error(format_args!(
            "`{text}` is not a directive; \
             write name=value, as blockSize=16m, or in a script RUN or IOR STOP"
        )));
    };
    let (name, value) = (name.trim(), value.trim());
    let letter = name.strip_prefix('-').and_then(|rest| {
        let mut letters = rest.chars();
        letters.next().filter(|c| *c != '-' && letters.next().is_none())
    });
    let spec = match letter {
        Some(letter) => options::by_letter(letter),
        None => options::by_directive(name),
    };
    match spec {
        Some(spec) => Ok(Directive { spec, name, value, location }),
        None => Err(location.unknown(name, &options::suggest_name(name))),
    }
}
