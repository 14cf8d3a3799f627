//! `forebay scrub`.

use super::print_stdout;
use crate::failure::Failure;
use crate::quantity::{bytes, thousands};
use crate::table::{self, Column};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct ScrubArgs {
    /// Directory of a storage daemon, or of an embedded pool
    directory: PathBuf,
}

pub(super) fn run(args: &ScrubArgs) -> Result<(), Failure> {
    if !args.directory.is_dir() {
        return Err(Failure::Input(format!(
            "{} is not a directory",
            args.directory.display()
        )));
    }
    let found = forebay_daemon::scrub::scrub_directory(&args.directory).map_err(Failure::Failed)?;
    let columns = [
        Column::text("instance", 0),
        Column::number("whole", 0),
        Column::number("data", 0),
        Column::number("given checksums", 0),
        Column::number("none yet", 0),
        Column::number("damaged", 0),
    ];
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|(id, scrubbed)| {
            vec![
                id.to_string(),
                thousands(scrubbed.intact),
                bytes(scrubbed.bytes),
                thousands(scrubbed.checksummed),
                thousands(scrubbed.not_checksummed),
                thousands(scrubbed.damaged.len() as u64),
            ]
        })
        .collect();
    print_stdout(&table::whole(&columns, &rows))?;
    let mut damaged = 0;
    for (id, scrubbed) in &found {
        for (ino, offset) in &scrubbed.damaged {
            damaged += 1;
            print_stdout(&format!(
                "instance {id}: inode {} is damaged from byte {offset} of its object on\n",
                ino.0
            ))?;
        }
    }
    match damaged {
        0 => Ok(()),
        n => Err(Failure::Failed(format!(
            "{n} damaged; `find MOUNT -inum INODE` names the file"
        ))),
    }
}
