//! A repository of C sources with a Makefile.

use crate::Outcome;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const DIRECTORIES: usize = 16;
const FILES: usize = 20;
/// Functions of each file.
const FUNCTIONS: usize = 12;

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Outcome<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Makes a repository of [`DIRECTORIES`] times [`FILES`] sources, each with a header.
pub fn make_repository(at: &Path) -> Outcome<()> {
    for directory in 0..DIRECTORIES {
        let path = at.join(format!("part-{directory}"));
        fs::create_dir_all(&path)?;
        for file in 0..FILES {
            let unit = format!("unit_{directory}_{file}");
            let (mut header, mut source) = (String::new(), format!("#include \"{unit}.h\"\n"));
            for function in 0..FUNCTIONS {
                writeln!(header, "int {unit}_{function}(int x);")?;
                let body = format!("return x * {function} + {file};");
                writeln!(source, "int {unit}_{function}(int x) {{ {body} }}")?;
            }
            fs::write(path.join(format!("{unit}.h")), header)?;
            fs::write(path.join(format!("{unit}.c")), source)?;
        }
    }
    let rules = "SOURCES := $(wildcard part-*/*.c)\nall.a: $(SOURCES:.c=.o)\n\tar rc $@ $^\n\
        %.o: %.c %.h\n\tcc -O0 -c -o $@ $<\n";
    fs::write(at.join("Makefile"), rules)?;
    let git = || {
        let mut git = Command::new("git");
        git.arg("-C").arg(at).args(["-c", "user.name=b", "-c", "user.email=b@localhost"]);
        git
    };
    run(git().args(["init", "-q"]))?;
    run(git().args(["add", "."]))?;
    run(git().args(["commit", "-q", "-m", "sources"]))
}
