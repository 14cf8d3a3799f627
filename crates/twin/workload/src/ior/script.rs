//! IOR scripts (`-f`) and directives (`-O`).
//!
//! A script runs from the line `IOR START` to `IOR STOP` or its end. Lines between are directives
//! (`name=value`, several joined by commas, comments after `#`) or `RUN`, which makes a test of all
//! that was set so far. Settings stay for the following tests; those of the command line come first.

use super::Ior;
use super::builder::IorBuilder;
use super::error::{IorError, OptionLocation};
use super::options;
use std::fs::File;
use std::io::Read;

/// The largest script that is read.
const LARGEST: u64 = 1 << 20;

/// The most tests of one script.
const MOST_TESTS: usize = 1000;

/// Reads the script `file`, named at `place`, on top of the options in `draft`.
pub(super) fn read(
    file: &str,
    place: &OptionLocation,
    draft: IorBuilder,
) -> Result<Vec<Ior>, IorError> {
    let unreadable = |reason: String| IorError::Unreadable {
        file: file.to_string(),
        place: place.clone(),
        reason,
    };
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|f| f.take(LARGEST + 1).read_to_end(&mut bytes))
        .map_err(|e| unreadable(e.to_string()))?;
    if bytes.len() as u64 > LARGEST {
        return Err(unreadable(format!("it has more than {LARGEST} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|e| unreadable(e.to_string()))?;
    tests(file, &text, draft)
}

/// The tests of a script's text.
fn tests(file: &str, text: &str, mut draft: IorBuilder) -> Result<Vec<Ior>, IorError> {
    let place = |line: usize, column: usize| OptionLocation::Script {
        file: file.to_string(),
        line,
        column,
    };
    let mut lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !bare(line).is_empty());
    if !lines.any(|(_, line)| is(line, &["ior", "start"])) {
        return Err(IorError::Script {
            place: place(1, 1),
            what: "no line `IOR START`".to_string(),
            right: "a script begins with it; lines before it are not read".to_string(),
        });
    }
    let mut tests = Vec::new();
    // The first directive that no RUN has used yet.
    let mut unused = None;
    for (number, line) in lines {
        if is(line, &["ior", "stop"]) {
            break;
        }
        if is(line, &["run"]) {
            if tests.len() == MOST_TESTS {
                return Err(IorError::Script {
                    place: place(number, 1),
                    what: format!("more than {MOST_TESTS} tests"),
                    right: "split the script".to_string(),
                });
            }
            tests.push(draft.clone().finish(tests.len() as u32)?);
            unused = None;
            continue;
        }
        unused.get_or_insert(number);
        directives(&mut draft, bare(line), &|column| {
            let indent = line.chars().take_while(|c| c.is_whitespace()).count();
            place(number, indent + column)
        })?;
    }
    match unused {
        Some(number) => Err(IorError::Script {
            place: place(number, 1),
            what: "options from here on are used by no test".to_string(),
            right: "add a line `RUN` after them".to_string(),
        }),
        None if tests.is_empty() => Err(IorError::Script {
            place: place(1, 1),
            what: "no line `RUN`, so no test".to_string(),
            right: "add one after the options".to_string(),
        }),
        None => Ok(tests),
    }
}

/// A line without comment and outer spaces.
fn bare(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// Whether a line consists of these words, in any case.
fn is(line: &str, words: &[&str]) -> bool {
    let line = bare(line);
    line.split_whitespace().count() == words.len()
        && line
            .split_whitespace()
            .zip(words)
            .all(|(a, b)| a.eq_ignore_ascii_case(b))
}

/// Applies `name=value,name=value` to a test. `place` gives the place of a column of the text,
/// from 1.
pub(super) fn directives(
    draft: &mut IorBuilder,
    text: &str,
    place: &dyn Fn(usize) -> OptionLocation,
) -> Result<(), IorError> {
    let mut column = 1;
    for part in text.split(',') {
        let indent = part.chars().take_while(|c| c.is_whitespace()).count();
        directive(draft, part.trim(), &place(column + indent))?;
        column += part.chars().count() + 1;
    }
    Ok(())
}

fn directive(draft: &mut IorBuilder, text: &str, place: &OptionLocation) -> Result<(), IorError> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(IorError::Script {
            place: place.clone(),
            what: format!("`{text}` is no directive"),
            right: "write name=value, as blockSize=16m, or in a script RUN or IOR STOP".to_string(),
        });
    };
    let (name, value) = (name.trim(), value.trim());
    let letter = name.strip_prefix('-').and_then(|rest| {
        let mut letters = rest.chars();
        letters
            .next()
            .filter(|c| *c != '-' && letters.next().is_none())
    });
    let spec = match letter {
        Some(letter) => options::by_letter(letter),
        None => options::by_directive(name),
    };
    match spec {
        Some(spec) => draft.apply(spec, name, Some(value), place),
        None => Err(IorError::Unknown {
            option: name.to_string(),
            place: place.clone(),
            suggestion: options::suggest_name(name),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ior::Api;
    use forebay_units::Bytes;

    fn run(text: &str) -> Result<Vec<Ior>, String> {
        tests("s.ior", text, IorBuilder::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn settings_stay_for_the_following_tests() {
        let tests = run("junk before\n  ior START # now\n\
                         \tapi=mpiio, blockSize = 4m # comment\n\
                         # only a comment\n\
                         transferSize=1m\n\
                         writeFile=1\n\
                         RUN\n\
                         readFile=1,writeFile=0\n\
                         filePerProc=1\n\
                         run\n\
                         RUN\n\
                         IOR STOP\n\
                         anything at all\n")
        .unwrap();
        assert_eq!(tests.len(), 3);
        assert_eq!(
            (tests[0].write, tests[0].read, tests[0].file_per_process),
            (true, false, false)
        );
        assert_eq!(
            (tests[1].write, tests[1].read, tests[1].file_per_process),
            (false, true, true)
        );
        assert!(
            tests
                .iter()
                .all(|t| t.api == Api::MpiIo && t.block == Bytes(4 << 20))
        );
        assert_eq!(tests.iter().map(|t| t.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(
            Ior {
                id: 2,
                ..tests[1].clone()
            },
            tests[2]
        );
    }

    #[test]
    fn errors_name_line_and_column() {
        let at = |text: &str| run(text).unwrap_err();
        let e = at("IOR START\n  blockSize=4m, blocksiez=3\nRUN\n");
        assert!(
            e.starts_with("s.ior:2:17: IOR has no option `blocksiez`"),
            "{e}"
        );
        assert!(e.contains("-b (blockSize)"), "{e}");
        let e = at("IOR START\nblockSize=x\nRUN\n");
        assert!(
            e.starts_with("s.ior:2:1: option `blockSize` cannot be `x`"),
            "{e}"
        );
        let e = at("IOR START\nblockSize=3m\ntransferSize=2m\nRUN\n");
        assert!(e.starts_with("s.ior:3:1: the block size"), "{e}");
        let e = at("IOR START\nreadFile=1\nRUN\n\nwriteFile=1\nIOR STOP\n");
        assert!(e.starts_with("s.ior:5:1: options from here on"), "{e}");
        let e = at("IOR START\nrum\nRUN\n");
        assert!(e.starts_with("s.ior:2:1: `rum` is no directive"), "{e}");
        let e = at("writeFile=1\nRUN\n");
        assert!(e.starts_with("s.ior:1:1: no line `IOR START`"), "{e}");
        let e = at("IOR START\nIOR STOP\n");
        assert!(e.contains("no line `RUN`"), "{e}");
        let e = at("IOR START\nscriptFile=other\nRUN\n");
        assert!(e.contains("cannot call another"), "{e}");
        let e = at("IOR START\nblockSize=\nRUN\n");
        assert!(e.contains("needs a value"), "{e}");
    }

    #[test]
    fn switched_off_options_are_no_matter() {
        let tests = run("IOR START\npreallocate=0,checkRead=0,quitOnError=0\nRUN\n").unwrap();
        assert_eq!(tests[0].notes, []);
        assert!(
            run("IOR START\npreallocate=1\nRUN\n")
                .unwrap_err()
                .contains("not simulated")
        );
    }

    #[test]
    fn other_spellings() {
        let tests =
            run("IOR START\n--posix.odirect=1\n-b=8m\nreordertasksconstant=1\nRUN\n").unwrap();
        assert!(tests[0].direct_io);
        assert_eq!(tests[0].block, Bytes(8 << 20));
        assert_eq!(tests[0].reorder, crate::ior::Reorder::Constant);
        assert!(run("IOR START\nuseO_DIRECT=1\nRUN\n").unwrap()[0].direct_io);
    }
}
