//! Small objects read whole, and objects made durable.

use super::{DiskObjects, folder, object_stat};
use crate::objects::{FetchedObject, ObjectId};
use forebay_protocol::Errno;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

impl DiskObjects {
    /// All of an object, without leaving a trace in its times; `None` if it is longer than `most`
    /// bytes, or somebody writes to it. `EIO`: it is not what it was when it was sealed. `EAGAIN`:
    /// the kernel would have to read it from the device, and the caller does not `wait`.
    pub fn fetch_object(
        &self,
        id: ObjectId,
        most: usize,
        wait: bool,
    ) -> Result<Option<FetchedObject>, Errno> {
        let file = self.open_for_scan(id)?;
        let look = || Ok::<_, Errno>(object_stat(&rustix::fs::fstat(&file)?));
        let stat = look()?;
        let length = usize::try_from(stat.size).unwrap_or(usize::MAX);
        if length > most {
            return Ok(None);
        }
        let mut data = vec![0; length];
        if wait {
            match file.read_exact_at(&mut data, 0) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                other => other?,
            }
        } else if length > 0 {
            let into = &mut [IoSliceMut::new(&mut data)];
            match preadv2(&file, into, 0, ReadWriteFlags::NOWAIT) {
                Ok(count) if count == length => {}
                // Some of it, or the file system cannot tell.
                Ok(_) | Err(rustix::io::Errno::OPNOTSUPP) => return Err(Errno::EAGAIN),
                Err(error) => return Err(error.into()),
            }
        }
        // Whoever writes breaks the seal before: one that still holds is that of these bytes.
        let damage = self
            .valid_checksums(&file)?
            .and_then(|seal| seal.first_damage(0, &data));
        if let Some(offset) = damage {
            tracing::error!(instance = %id.instance, ino = %id.ino, offset, "data at rest are damaged");
            return Err(Errno::EIO);
        }
        let now = look()?;
        let same = (now.size, now.mtime) == (stat.size, stat.mtime);
        let stat = Some(stat);
        Ok(same.then_some(FetchedObject { stat, data }))
    }

    /// Make the contents of all objects durable, and their existence.
    pub fn sync_all(&self) -> Result<(), Errno> {
        Ok(rustix::fs::syncfs(&*self.whole)?)
    }

    /// Make an object's contents durable, and its existence if `fresh`.
    pub fn sync_object(&self, id: ObjectId, data_only: bool, fresh: bool) -> Result<(), Errno> {
        let file = match self.open_object(id, OFlags::RDWR) {
            Err(Errno::ENOENT) => return Ok(()), // never had data, or has been removed since
            other => other?,
        };
        if data_only {
            rustix::fs::fdatasync(&file)?
        } else {
            rustix::fs::fsync(&file)?
        }
        if fresh {
            let dir = self.dir(id.instance)?;
            let folder = openat(&*dir, folder(id.ino), OFlags::RDONLY, Mode::empty())?;
            rustix::fs::fsync(&folder)?;
        }
        Ok(())
    }
}
