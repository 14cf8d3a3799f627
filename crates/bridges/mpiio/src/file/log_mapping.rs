//! The log of a process: one of its own, or a slot of one that the processes of its node share.

use crate::mpi::MpiError;
use crate::mpi::communicator::Communicator;
use crate::selection::Settings;
use forebay_mpiio_log::{Identity, Limits, LogWriter, MIN_SEGMENT_BYTES};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Least default capacity of a log in bytes.
const LEAST_CAPACITY: u64 = 64 << 20;

/// A log that was created.
pub struct CreatedLog {
    pub writer: LogWriter,
    /// Whether this process removes the file of the log.
    pub owned: bool,
}

impl CreatedLog {
    /// Releases the log, and removes its file if that is this process's to do. The other processes of a
    /// node have released theirs, or do not need them.
    ///
    /// # Errors
    /// The log cannot be written or removed.
    pub fn discard(mut self) -> io::Result<()> {
        if self.owned { self.writer.discard() } else { self.writer.reset() }
    }
}

/// The processes of a node.
struct Node {
    /// The first of them, which creates the log.
    leader: usize,
    /// Number of this process among them.
    slot: u32,
    slots: u32,
}

/// Creates the log of this process, or takes a slot in that of its node. Collective if `per_node`;
/// `limits` is then an error on a process that cannot log.
///
/// # Errors
/// The outer one is that of MPI, the inner one that of the log.
pub fn create(
    comm: &Communicator,
    directory: &Path,
    identity: &Identity,
    limits: io::Result<Limits>,
    per_node: bool,
) -> Result<io::Result<CreatedLog>, MpiError> {
    let own = |writer| CreatedLog { writer, owned: true };
    if !per_node {
        return Ok(
            limits.and_then(|limits| LogWriter::create(directory, identity, limits).map(own))
        );
    }
    let node = node(comm)?;
    let created = match (&limits, comm.rank == node.leader) {
        (Ok(limits), true) => {
            Some(LogWriter::create_shared(directory, identity, node.slots, *limits))
        }
        (Ok(_), false) | (Err(_), _) => None,
    };
    let path = match &created {
        Some(Ok(writer)) => writer.path().as_os_str().as_bytes(),
        Some(Err(_)) | None => &[],
    };
    let paths = comm.gather_all(path)?;
    let shared = &paths[node.leader];
    Ok(match (limits, created) {
        (Err(error), _) => Err(error),
        (Ok(_), Some(created)) => created.map(own),
        (Ok(_), None) if shared.is_empty() => {
            Err(io::Error::other("the first process of the node has no log"))
        }
        (Ok(limits), None) => {
            let path = Path::new(OsStr::from_bytes(shared));
            LogWriter::join(path, node.slot, identity.rank, limits)
                .map(|writer| CreatedLog { writer, owned: false })
        }
    })
}

/// The processes that have the boot of this one's host, which tells hosts of equal names apart.
fn node(comm: &Communicator) -> Result<Node, MpiError> {
    let read = |path| std::fs::read(path).unwrap_or_default();
    let mut host = read("/proc/sys/kernel/random/boot_id");
    host.extend(read("/proc/sys/kernel/hostname"));
    let hosts = comm.gather_all(&host)?;
    let same = |ranks: &[Vec<u8>]| ranks.iter().filter(|other| **other == host).count() as u32;
    let leader = hosts.iter().position(|other| *other == host);
    Ok(Node {
        leader: leader.unwrap_or_else(|| unreachable!("this process has the host")),
        slot: same(&hosts[..comm.rank]),
        slots: same(&hosts),
    })
}

/// The limits of a log with these settings, whose capacity is chosen if it is not given.
pub fn limits(comm: &Communicator, settings: &mut Settings) -> io::Result<Limits> {
    if settings.capacity == 0 {
        let free = free_bytes(&settings.directory)?;
        settings.capacity = (free / 2 / comm.size as u64).max(LEAST_CAPACITY);
    }
    let default = Limits::default();
    let segment = settings.capacity / 4096 * 4096;
    Ok(Limits {
        bytes: settings.capacity,
        segment_bytes: segment.clamp(MIN_SEGMENT_BYTES, default.segment_bytes),
        ..default
    })
}

/// Bytes that are free in the file system of a directory.
fn free_bytes(directory: &Path) -> io::Result<u64> {
    let state = rustix::fs::statvfs(directory).map_err(|error| {
        io::Error::new(
            io::Error::from(error).kind(),
            format!("directory of logs {}: {error}", directory.display()),
        )
    })?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}
