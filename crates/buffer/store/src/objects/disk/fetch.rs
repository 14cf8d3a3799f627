//! Reading whole small objects, and making objects durable.

use super::{DiskObjects, folder_name, object_info};
use crate::objects::{FetchedObject, ObjectId};
use forebay_protocol::Errno;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{ReadWriteFlags, preadv2};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;

impl DiskObjects {
    /// Read a whole object without updating its access time. `None` if it is longer than
    /// `max_bytes` or is being written. Fails with `EIO` if the data do not match the checksums,
    /// and with `EAGAIN` if the data are not in the page cache and the caller does not `wait`.
    pub fn fetch_object(
        &self,
        id: ObjectId,
        max_bytes: usize,
        wait: bool,
    ) -> Result<Option<FetchedObject>, Errno> {
        let file = self.open_for_scan(id)?;
        let read_stat = || Ok::<_, Errno>(object_info(&rustix::fs::fstat(&file)?));
        let stat = read_stat()?;
        let length = usize::try_from(stat.size).unwrap_or(usize::MAX);
        if length > max_bytes {
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
                // Partly cached, or not supported by the file system.
                Ok(_) | Err(rustix::io::Errno::OPNOTSUPP) => return Err(Errno::EAGAIN),
                Err(error) => return Err(error.into()),
            }
        }
        // Writers invalidate the checksums first, so valid ones describe the bytes just read.
        let damage =
            self.valid_checksums(&file)?.and_then(|checksums| checksums.first_damage(0, &data));
        if let Some(offset) = damage {
            self.note_mismatch(id, offset);
            return Err(Errno::EIO);
        }
        let now = read_stat()?;
        let is_unchanged = (now.size, now.mtime) == (stat.size, stat.mtime);
        let stat = Some(stat);
        Ok(is_unchanged.then_some(FetchedObject { stat, data }))
    }

    /// Make all objects and their existence durable.
    pub fn sync_all(&self) -> Result<(), Errno> {
        Ok(rustix::fs::syncfs(&*self.root_dir)?)
    }

    /// Make an object durable by a file that is opened for that. A missing object is not an error.
    pub fn sync_object(&self, id: ObjectId, data_only: bool) -> Result<(), Errno> {
        match self.open_object(id, OFlags::RDWR) {
            Err(Errno::ENOENT) => Ok(()), // never had data, or was removed
            other => self.sync_file(&File::from(other?), data_only),
        }
    }

    /// Make the object of an open file durable, except its times if `data_only`.
    pub fn sync_file(&self, file: &File, data_only: bool) -> Result<(), Errno> {
        let synced = if data_only { file.sync_data() } else { file.sync_all() };
        Ok(synced?)
    }

    /// Make the existence of an object durable.
    pub fn sync_folder(&self, id: ObjectId) -> Result<(), Errno> {
        let dir = self.instance_dir(id.instance)?;
        let folder = openat(&*dir, folder_name(id.ino), OFlags::RDONLY, Mode::empty())?;
        Ok(rustix::fs::fsync(&folder)?)
    }
}
