//! Which way data go: through the page cache or past it.

use super::DataConnection;
use super::open_objects::OpenObject;
use crate::daemon::flights::{ALIGNMENT, Aligned, is_aligned, probe_ring};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Whether large reads and writes of clients on other hosts go past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direct {
    /// Those of objects that are larger than half of the host's memory: the cache could not keep
    /// them, and would lose everything else. What fits is faster through the cache, which reads
    /// ahead and writes behind across requests: on a virtual disk of 1.8 GB/s, four clients wrote and
    /// synced 1.7 times as much through it, and read 1.5 times as much.
    #[default]
    Auto,
    /// Nothing does.
    Never,
    /// All that can.
    Always,
}

/// What a daemon uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPath {
    /// What goes past the page cache; [`Direct::Never`] where the file system does not let it.
    pub direct: Direct,
    /// Several requests are under way by `io_uring`, not by threads.
    pub uring: bool,
    /// Objects of more bytes than this are large to [`Direct::Auto`].
    pub large: u64,
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, how) = match self.direct {
            Direct::Never => return f.write_str("through the page cache"),
            Direct::Auto => ("large objects past the page cache", self.uring),
            Direct::Always => ("past the page cache", self.uring),
        };
        write!(
            f,
            "{what}, {}",
            if how { "by io_uring" } else { "by threads" }
        )
    }
}

/// Find out what works in the directory `dir`, and say why what was wanted does not.
pub fn probe(dir: &Path, wanted: Direct, uring: bool) -> DataPath {
    if wanted == Direct::Never {
        return CACHED;
    }
    if let Err(error) = probe_direct(dir) {
        tracing::info!(dir = %dir.display(), %error, "the file system does no direct I/O");
        return CACHED;
    }
    let ring = if uring { probe_ring() } else { Ok(()) };
    if let Err(error) = &ring {
        tracing::info!(%error, "the kernel gives no io_uring: threads wait instead");
    }
    DataPath {
        direct: wanted,
        uring: uring && ring.is_ok(),
        large: memory() / 2,
    }
}

const CACHED: DataPath = DataPath {
    direct: Direct::Never,
    uring: false,
    large: u64::MAX,
};

/// Bytes of memory of this host; if it does not say, as many as can be.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib.saturating_mul(1024))
}

/// File systems in memory accept direct I/O and copy all the same.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6]; // tmpfs, ramfs: linux/magic.h

fn probe_direct(dir: &Path) -> io::Result<()> {
    let file_system = rustix::fs::statfs(dir)?;
    if IN_MEMORY.contains(&(file_system.f_type as u64)) {
        return Err(io::Error::other("it is in memory"));
    }
    let path = dir.join("direct");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::DIRECT;
    let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let outcome = opened.map_err(io::Error::from).and_then(|fd| {
        let file = File::from(fd);
        let mut page = Aligned::new(ALIGNMENT)?;
        page.fill(1);
        file.write_all_at(&page, 0)?;
        page.fill(0);
        file.read_exact_at(&mut page, 0)
    });
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => outcome,
    }
}

/// Shorter requests go through the page cache: they would wait for the device one by one.
const LEAST: usize = 256 << 10;

impl DataConnection<'_> {
    fn wants_direct(&self, size: u64, offset: u64, length: usize) -> bool {
        let wanted = match self.path.direct {
            Direct::Never => false,
            Direct::Auto => size > self.path.large,
            Direct::Always => true,
        };
        wanted && length >= LEAST && is_aligned(offset)
    }

    /// The object to read from directly, if that is how this part of its `size` bytes is to be read.
    pub(super) fn reads_directly<'o>(
        &self,
        open: &'o OpenObject,
        size: u64,
        offset: u64,
        length: usize,
    ) -> Option<&'o File> {
        if self.wants_direct(size, offset, length) {
            open.direct(self.objects)
        } else {
            None
        }
    }

    /// The object to write to directly, if that is how this is to be written.
    pub(super) fn writes_directly<'o>(
        &self,
        open: &'o OpenObject,
        file: &File,
        offset: u64,
        length: usize,
    ) -> Option<&'o File> {
        let end = offset.saturating_add(length as u64);
        let size = match self.path.direct {
            Direct::Auto if end <= self.path.large => file.metadata().map_or(0, |it| it.len()),
            _ => end,
        };
        if self.wants_direct(size, offset, length) && !self.opens.may_be_mapped(open.object) {
            open.direct(self.objects)
        } else {
            None
        }
    }
}
