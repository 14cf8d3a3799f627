//! IOR scripts (`-f`).
//!
//! A script extends from the line `IOR START` to `IOR STOP` or its end. Lines between are directives
//! (`name=value`, several joined by commas, comments after `#`) or `RUN`, which completes a test with
//! the settings so far. Settings persist for the following tests; those of the command line apply
//! first.

use super::builder::IorBuilder;
use super::check::finish_test;
use super::directive::parse_directives;
use super::error::{IorError, OptionLocation};
use super::spec::Ior;
use std::fs::File;
use std::io::Read;

/// The largest script.
const MAX_SCRIPT_BYTES: u64 = 1 << 20;

/// The largest number of tests of one script.
const MAX_TESTS: usize = 1000;

/// Reads the script `file`, named at `location`, after the options in `builder`.
pub(super) fn read_script(
    file: &str,
    location: &OptionLocation,
    builder: IorBuilder,
) -> Result<Vec<Ior>, IorError> {
    let unreadable = |reason: String| {
        location.error(format_args!("cannot read the IOR script `{file}`: {reason}"))
    };
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|f| f.take(MAX_SCRIPT_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| unreadable(e.to_string()))?;
    if bytes.len() as u64 > MAX_SCRIPT_BYTES {
        return Err(unreadable(format!("it has more than {MAX_SCRIPT_BYTES} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|e| unreadable(e.to_string()))?;
    parse_script(file, &text, builder)
}

/// The tests of a script's text.
fn parse_script(file: &str, text: &str, mut builder: IorBuilder) -> Result<Vec<Ior>, IorError> {
    let location = |line, column| OptionLocation::Script { file: file.to_string(), line, column };
    let error = |line, what: &str| Err(location(line, 1).error(format_args!("{what}")));
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !bare(line).is_empty());
    if !lines.any(|(_, line)| consists_of(line, &["ior", "start"])) {
        return error(
            1,
            "no line `IOR START`; a script begins with it; lines before it are ignored",
        );
    }
    let mut tests = Vec::new();
    // The first directive after the last RUN.
    let mut unused = None;
    for (number, line) in lines {
        if consists_of(line, &["ior", "stop"]) {
            break;
        }
        if consists_of(line, &["run"]) {
            if tests.len() == MAX_TESTS {
                return error(number, &format!("more than {MAX_TESTS} tests; split the script"));
            }
            tests.push(finish_test(builder.clone(), tests.len() as u32)?);
            unused = None;
            continue;
        }
        unused.get_or_insert(number);
        let indent = line.chars().take_while(|c| c.is_whitespace()).count();
        for directive in parse_directives(bare(line), &|column| location(number, indent + column)) {
            builder.apply_directive(directive?)?;
        }
    }
    match unused {
        Some(number) => error(
            number,
            "options from here on are not used by any test; add a line `RUN` after them",
        ),
        None if tests.is_empty() => {
            error(1, "no line `RUN`, so no test; add one after the options")
        }
        None => Ok(tests),
    }
}

/// A line without comment and surrounding white space.
fn bare(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// Whether a line consists of these words, ignoring case.
fn consists_of(line: &str, words: &[&str]) -> bool {
    let line = bare(line);
    line.split_whitespace().count() == words.len()
        && line.split_whitespace().zip(words).all(|(a, b)| a.eq_ignore_ascii_case(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ior::Api;
    use forebay_units::Bytes;

    fn run(text: &str) -> Result<Vec<Ior>, String> {
        parse_script("s.ior", text, IorBuilder::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn settings_persist_for_the_following_tests() {
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
        assert_eq!((tests[1].write, tests[1].read, tests[1].file_per_process), (false, true, true));
        assert!(tests.iter().all(|t| t.api == Api::MpiIo && t.block == Bytes(4 << 20)));
        assert_eq!(tests.iter().map(|t| t.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(Ior { id: 2, ..tests[1].clone() }, tests[2]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let at = |text: &str| run(text).unwrap_err();
        let e = at("IOR START\n  blockSize=4m, blocksiez=3\nRUN\n");
        assert!(e.starts_with("s.ior:2:17: IOR has no option `blocksiez`"), "{e}");
        assert!(e.contains("-b (blockSize)"), "{e}");
        let e = at("IOR START\nblockSize=x\nRUN\n");
        assert!(e.starts_with("s.ior:2:1: option `blockSize` cannot be `x`"), "{e}");
        let e = at("IOR START\nblockSize=3m\ntransferSize=2m\nRUN\n");
        assert!(e.starts_with("s.ior:3:1: the block size"), "{e}");
        let e = at("IOR START\nreadFile=1\nRUN\n\nwriteFile=1\nIOR STOP\n");
        assert!(e.starts_with("s.ior:5:1: options from here on"), "{e}");
        let e = at("IOR START\nrum\nRUN\n");
        assert!(e.starts_with("s.ior:2:1: `rum` is not a directive"), "{e}");
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
    fn disabled_options_are_ignored() {
        let tests = run("IOR START\npreallocate=0,checkRead=0,quitOnError=0\nRUN\n").unwrap();
        assert_eq!(tests[0].notes, []);
        assert!(run("IOR START\npreallocate=1\nRUN\n").unwrap_err().contains("not simulated"));
    }

    #[test]
    fn directives_accept_option_letters_long_names_and_any_case() {
        let tests =
            run("IOR START\n--posix.odirect=1\n-b=8m\nreordertasksconstant=1\nRUN\n").unwrap();
        assert!(tests[0].direct_io);
        assert_eq!(tests[0].block, Bytes(8 << 20));
        assert_eq!(tests[0].reorder, crate::ior::Reorder::Constant);
        assert!(run("IOR START\nuseO_DIRECT=1\nRUN\n").unwrap()[0].direct_io);
    }
}
