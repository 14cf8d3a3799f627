//! Bytes written to a block device, as the kernel counts them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forebay_units::Bytes;

/// Field of a block device's `stat` file: sectors written.
const SECTORS_WRITTEN: usize = 6;
/// Bytes in a sector, whatever the device's own sector size.
const SECTOR_BYTES: u64 = 512;

/// Counts the bytes written to the device of a directory since this process started.
#[derive(Debug)]
pub(crate) struct WrittenBytes {
    /// The device's `stat` file in sysfs.
    stat: PathBuf,
    at_start: u64,
}

impl WrittenBytes {
    /// The device on which `directory` is. Without a block device (tmpfs, a network file system)
    /// the count stays zero.
    pub fn of_device(directory: &Path) -> WrittenBytes {
        let device = fs::metadata(directory).map_or(0, |metadata| metadata.dev());
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        let at_start = read_written(&stat);
        WrittenBytes { stat, at_start }
    }

    /// Bytes written since the start.
    pub fn since_start(&self) -> Bytes {
        Bytes(read_written(&self.stat).saturating_sub(self.at_start))
    }
}

fn read_written(stat: &Path) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    let sectors = text.split_whitespace().nth(SECTORS_WRITTEN);
    let sectors: u64 = sectors.and_then(|field| field.parse().ok()).unwrap_or_default();
    sectors.saturating_mul(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_written_are_read_from_the_stat_file() {
        let directory = tempfile::tempdir().unwrap();
        let stat = directory.path().join("stat");
        fs::write(&stat, "  100 1 800 5   200 2 4096 9 0 7 14 0 0 0 0\n").unwrap();
        assert_eq!(read_written(&stat), 4096 * SECTOR_BYTES);
        assert_eq!(read_written(&directory.path().join("absent")), 0);
    }
}
