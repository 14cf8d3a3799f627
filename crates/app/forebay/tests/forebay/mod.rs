#![allow(dead_code, missing_docs, clippy::unwrap_used)]
//! The `forebay` command in a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// An empty directory in which commands are run; removed at the end.
pub struct Place {
    dir: tempfile::TempDir,
}

/// What a command said.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Place {
        Place {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command
            .args(line.split_whitespace())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line whose words have no blanks in them.
    pub fn run(&self, line: &str) -> Said {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(line).output().unwrap();
        Said {
            code: status.code(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }

    /// Runs a command that has to succeed.
    pub fn ok(&self, line: &str) -> Said {
        let said = self.run(line);
        assert_eq!(said.code, Some(0), "{line}\n{}{}", said.out, said.err);
        said
    }

    /// Runs a command whose input is wrong: exit code 2, a message, nothing on standard output,
    /// nothing written.
    pub fn refused(&self, line: &str) -> String {
        let before = self.files();
        let said = self.run(line);
        assert_eq!(said.code, Some(2), "{line}\n{}{}", said.out, said.err);
        assert_eq!(said.out, "", "{line}");
        assert!(said.err.starts_with("error: "), "{line}\n{}", said.err);
        assert_eq!(self.files(), before, "{line} wrote something");
        said.err
    }

    /// Runs a command that prints a JSON document and nothing else.
    pub fn json(&self, line: &str) -> serde_json::Value {
        let said = self.ok(line);
        serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{line}: {e}\n{}", said.out))
    }

    pub fn spawn(&self, line: &str) -> Child {
        self.command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name))
            .unwrap_or_else(|e| panic!("{name}: {e}; there are {:?}", self.files()))
    }

    pub fn read_bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name))
            .unwrap_or_else(|e| panic!("{name}: {e}; there are {:?}", self.files()))
    }

    /// All files below the directory, hidden ones too.
    pub fn files(&self) -> Vec<String> {
        fn walk(root: &Path, dir: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path: PathBuf = entry.unwrap().path();
                found.push(path.strip_prefix(root).unwrap().display().to_string());
                if path.is_dir() {
                    walk(root, &path, found);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.path(), self.path(), &mut found);
        found.sort();
        found
    }
}
