//! The `forebay` command in a temporary working directory.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A working directory for commands; empty at first, and removed at the end.
pub struct WorkDir {
    dir: tempfile::TempDir,
}

/// Exit code and output of a command.
pub struct CommandOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl WorkDir {
    pub fn new() -> WorkDir {
        WorkDir { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(line.split_whitespace()).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// Runs a command line, split at blanks.
    pub fn run(&self, line: &str) -> CommandOutput {
        let Output { status, stdout, stderr } = self.command(line).output().unwrap();
        CommandOutput {
            code: status.code(),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed.
    pub fn expect_success(&self, line: &str) -> CommandOutput {
        let output = self.run(line);
        assert_eq!(output.code, Some(0), "{line}\n{}{}", output.stdout, output.stderr);
        output
    }

    /// Runs a command with invalid input: exit code 2, a message on standard error, no other
    /// output, no file written. Returns the message.
    pub fn expect_invalid_input(&self, line: &str) -> String {
        let before = self.list_files();
        let output = self.run(line);
        assert_eq!(output.code, Some(2), "{line}\n{}{}", output.stdout, output.stderr);
        assert_eq!(output.stdout, "", "{line}");
        assert!(output.stderr.starts_with("error: "), "{line}\n{}", output.stderr);
        assert_eq!(self.list_files(), before, "{line} wrote something");
        output.stderr
    }

    /// Runs a command that prints only a JSON document.
    pub fn json(&self, line: &str) -> serde_json::Value {
        let output = self.expect_success(line);
        serde_json::from_str(&output.stdout)
            .unwrap_or_else(|e| panic!("{line}: {e}\n{}", output.stdout))
    }

    pub fn spawn(&self, line: &str) -> Child {
        self.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name))
            .unwrap_or_else(|e| panic!("{name}: {e}; there are {:?}", self.list_files()))
    }

    pub fn read_bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name))
            .unwrap_or_else(|e| panic!("{name}: {e}; there are {:?}", self.list_files()))
    }

    /// The document of a `--json` file without its `directory`, which is that of the run directory `name`.
    pub fn document_of(&self, json: &str, name: &str) -> serde_json::Value {
        let mut document: serde_json::Value = serde_json::from_str(&self.read(json)).unwrap();
        let directory = document.as_object_mut().unwrap().remove("directory").unwrap();
        let path = PathBuf::from(directory.as_str().unwrap());
        assert!(path.is_absolute(), "{path:?}");
        let canonical = |path: &Path| path.canonicalize().unwrap();
        assert_eq!(canonical(&path), canonical(&self.path().join(name)));
        document
    }

    /// All files below the directory, with hidden ones.
    pub fn list_files(&self) -> Vec<String> {
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
