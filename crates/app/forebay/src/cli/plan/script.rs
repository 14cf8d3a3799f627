//! The job script of a plan.

use forebay_console::Failure;
use forebay_job::{RunError, read_script};
use forebay_job_script::{AccessMode, Direction, JobScript, StagePath};
use forebay_plan::{BatchOptions, UnreadableOption};
use forebay_units::Bytes;
use std::path::Path;

/// The job script: its batch options and its directives.
#[derive(Default)]
pub(super) struct Script {
    pub(super) batch: BatchOptions,
    pub(super) unreadable: Vec<UnreadableOption>,
    pub(super) directives: JobScript,
}

impl Script {
    pub(super) fn read(path: &Path) -> Result<Script, Failure> {
        let directives = read_script(path, "plan").map_err(|error| match error {
            error if error.is_bad_input() => Failure::Input(error.to_string()),
            error @ RunError::Unreadable(..) => Failure::Input(error.to_string()),
            error => Failure::Failed(error.to_string()),
        })?;
        let text = std::fs::read(path)
            .map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?;
        let (batch, unreadable) = BatchOptions::parse(&String::from_utf8_lossy(&text));
        Ok(Script { batch, unreadable, directives })
    }

    /// The access modes of the job's own instance.
    pub(super) fn access_modes(&self) -> Vec<AccessMode> {
        let own = self.directives.job();
        own.map_or(Vec::new(), |own| own.access.iter().map(|access| access.mode).collect())
    }

    /// The pool of the job's own instance, if it names one.
    pub(super) fn pool(&self) -> Option<String> {
        self.directives.job()?.pool.clone()
    }

    /// Bytes and files of the sources of its stage-ins on this host, and a warning about each source whose size is not
    /// known here.
    pub(super) fn staged_in(&self) -> (Bytes, u64, Vec<String>) {
        let (mut total, mut files, mut unknown) = (0u64, 0, Vec::new());
        for stage in self.directives.stages(Direction::In) {
            let StagePath::Pfs(source) = &stage.source else { continue };
            match tree_bytes(Path::new(source)) {
                Ok((found, of_tree)) => {
                    (total, files) = (total.saturating_add(found), files + of_tree);
                }
                Err(reason) => unknown.push(format!(
                    "line {} of the script: the size of {source} is unknown here ({reason}), and neither the bytes that \
                     the burst buffer has to hold nor the stage-in have it: give --stage-in",
                    stage.line
                )),
            }
        }
        (Bytes(total), files, unknown)
    }
}

/// Bytes and number of the files below a path, without following links.
fn tree_bytes(path: &Path) -> Result<(u64, u64), String> {
    const MOST_ENTRIES: usize = 200_000;
    let (mut waiting, mut seen) = (vec![path.to_owned()], 0);
    let (mut total, mut files) = (0u64, 0);
    while let Some(path) = waiting.pop() {
        seen += 1;
        if seen > MOST_ENTRIES {
            return Err(format!("more than {MOST_ENTRIES} files"));
        }
        let about = path.symlink_metadata().map_err(|error| error.to_string())?;
        if about.is_dir() {
            for entry in std::fs::read_dir(&path).map_err(|error| error.to_string())? {
                waiting.push(entry.map_err(|error| error.to_string())?.path());
            }
        } else if about.is_file() {
            (total, files) = (total.saturating_add(about.len()), files + 1);
        }
    }
    Ok((total, files))
}
