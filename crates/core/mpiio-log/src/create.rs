//! Creation of logs.

use crate::file_identity::FileIdentity;
use crate::format::{
    Geometry, HEADER_BYTES, Header, MAX_SEGMENT_BYTES, MAX_SLOTS, MIN_SEGMENT_BYTES, salt,
};
use crate::identity::{Identity, Limits};
use crate::writer::LogWriter;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Files of equal identity before creation fails.
const MAX_ATTEMPTS: u32 = 1000;

impl LogWriter {
    /// Creates a log of one process in `directory`, which exists. The name is chosen so that it
    /// differs from the logs that earlier runs left.
    ///
    /// # Errors
    /// The limits are not valid, the path of the target is not absolute or too long, or the file
    /// cannot be created.
    pub fn create(directory: &Path, identity: &Identity, limits: Limits) -> io::Result<LogWriter> {
        LogWriter::create_shared(directory, identity, 1, limits)
    }

    /// Creates a log that `slots` processes of a node share, and takes slot 0. The others call
    /// [`LogWriter::join`] with the path of this writer and the same segment size.
    ///
    /// # Errors
    /// As [`LogWriter::create`].
    pub fn create_shared(
        directory: &Path,
        identity: &Identity,
        slots: u32,
        limits: Limits,
    ) -> io::Result<LogWriter> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let created = now.as_nanos() as u64;
        let geometry = Geometry { slots, segment_bytes: limits.segment_bytes, salt: salt(created) };
        if !geometry.is_valid() {
            return Err(invalid(format!(
                "a log has 1 to {} slots and segments of a multiple of 4096 bytes from {} to {}; \
                 not {} slots and {} bytes",
                MAX_SLOTS, MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES, slots, limits.segment_bytes
            )));
        }
        if !identity.target.is_absolute() {
            let target = identity.target.display();
            return Err(invalid(format!("the path of the target, {target}, is not absolute")));
        }
        let header = Header {
            geometry,
            ranks: identity.ranks,
            created,
            run: identity.run.clone().into_bytes(),
            target: identity.target.as_os_str().as_bytes().to_vec(),
            file: FileIdentity::of(&identity.target),
        };
        let header = header.encode()?;
        let (path, file) = create_file(directory, identity)?;
        let started = file.write_all_at(&header, 0);
        let started = started.and_then(|()| {
            LogWriter::start(path.clone(), file, geometry, 0, identity.rank, limits)
        });
        started.inspect_err(|_| {
            let _ = std::fs::remove_file(&path);
        })
    }

    /// Takes a slot of the log that a process of this node created.
    ///
    /// # Errors
    /// The log cannot be opened, has no such slot, or segments of another size.
    pub fn join(path: &Path, slot: u32, rank: u32, limits: Limits) -> io::Result<LogWriter> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if !lock(&file)? {
            return Err(invalid(format!("{} is being replayed", path.display())));
        }
        let mut bytes = vec![0; HEADER_BYTES as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let header = Header::decode(&bytes)
            .map_err(|_| invalid(format!("{} is not a log", path.display())))?;
        if slot >= header.geometry.slots || header.geometry.segment_bytes != limits.segment_bytes {
            return Err(invalid(format!(
                "{} has {} slots and segments of {} bytes; slot {slot} with segments of {} bytes \
                 does not exist",
                path.display(),
                header.geometry.slots,
                header.geometry.segment_bytes,
                limits.segment_bytes
            )));
        }
        LogWriter::start(path.to_owned(), file, header.geometry, slot, rank, limits)
    }
}

fn create_file(directory: &Path, identity: &Identity) -> io::Result<(PathBuf, File)> {
    for attempt in 0..MAX_ATTEMPTS {
        let path = directory.join(identity.file_name(attempt));
        let opened =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match opened {
            Ok(file) if lock(&file)? && file.metadata()?.nlink() > 0 => return Ok((path, file)),
            // A replay is removing the blank file.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(invalid(format!("{} has {MAX_ATTEMPTS} logs of one identity", directory.display())))
}

/// Marks a log as in use, if the file system can. Returns false if a replay has locked it.
fn lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
