//! The file system of a test.

use super::options::size;
use clap::Args;
use forebay_console::Failure;
use forebay_machine::study::FileSystem;
use forebay_machine_file::machine::Machine;
use forebay_units::Bytes;

#[derive(Debug, Args)]
pub(super) struct FileSystemArgs {
    /// The file system of the test's files
    #[arg(long, value_enum, default_value_t = FileSystemArg::BurstBuffer)]
    file_system: FileSystemArg,
    /// Targets over which the parallel file system stripes a file [default: the machine file's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stripe_count: Option<u32>,
    /// Bytes of a stripe on the parallel file system [default: the machine file's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    stripe_size: Option<Bytes>,
}

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FileSystemArg {
    /// An instance of the burst buffer
    BurstBuffer,
    /// The parallel file system
    Pfs,
}

impl FileSystemArgs {
    /// The file system, if the options fit it.
    pub(super) fn checked(&self, burst_buffers: Option<u32>) -> Result<FileSystem, Failure> {
        match self.file_system {
            FileSystemArg::BurstBuffer => {
                let stripes = [
                    ("--stripe-count", self.stripe_count.is_some()),
                    ("--stripe-size", self.stripe_size.is_some()),
                ];
                match stripes.into_iter().find(|(_, is_given)| *is_given) {
                    Some((option, _)) => Err(Failure::Input(format!(
                        "{option} is for the parallel file system: use it with --file-system pfs"
                    ))),
                    None => Ok(FileSystem::BurstBuffer),
                }
            }
            FileSystemArg::Pfs if burst_buffers.is_some() => Err(Failure::Input(
                "--burst-buffers is for the burst buffer: leave it out with --file-system pfs"
                    .to_string(),
            )),
            FileSystemArg::Pfs => Ok(FileSystem::Parallel {
                stripe_count: self.stripe_count,
                stripe: self.stripe_size,
            }),
        }
    }

    /// The file system of a machine in results: `burst-buffer`, or `pfs, 4 x 1 MiB a file`.
    pub(super) fn text(&self, machine: &Machine) -> String {
        let lustre = machine.pfs.as_ref().and_then(|pfs| pfs.lustre.as_ref());
        match (self.file_system, lustre) {
            (FileSystemArg::BurstBuffer, _) => "burst-buffer".to_string(),
            (FileSystemArg::Pfs, None) => "pfs".to_string(),
            (FileSystemArg::Pfs, Some(lustre)) => format!(
                "pfs, {} x {} a file",
                self.stripe_count.unwrap_or(lustre.stripe_count),
                self.stripe_size.unwrap_or(lustre.stripe)
            ),
        }
    }
}
