//! `forebay scrub`.

use crate::console::print_stdout;
use clap::Args;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_units::human::{bytes, grouped};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct ScrubArgs {
    /// Directory of a storage daemon, or of an embedded pool
    directory: PathBuf,
}

pub(super) fn run(args: &ScrubArgs) -> Result<(), Failure> {
    if !args.directory.is_dir() {
        return Err(Failure::Input(format!("{} is not a directory", args.directory.display())));
    }
    let found = forebay_daemon::scrub::scrub_directory(&args.directory).map_err(Failure::Failed)?;
    let mut table = Table::new([
        Column::text("instance", 0),
        Column::number("whole", 0),
        Column::number("data", 0),
        Column::number("given checksums", 0),
        Column::number("none yet", 0),
        Column::number("damaged", 0),
    ]);
    for (id, scrubbed) in &found {
        table.push([
            id.to_string(),
            grouped(scrubbed.intact),
            bytes(scrubbed.bytes),
            grouped(scrubbed.checksummed),
            grouped(scrubbed.not_checksummed),
            grouped(scrubbed.damaged.len() as u64),
        ]);
    }
    print_stdout(&table.to_string())?;
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
        n => Err(Failure::Failed(format!("{n} damaged; `find MOUNT -inum INODE` names the file"))),
    }
}
