//! Checksums of objects on disk, and the record of their durable generations.

use super::{DiskObjects, FOLDERS, folder_name};
use crate::objects::block_checksums::BlockChecksums;
use crate::objects::checksum::{self, ObjectFile, ScrubVerdict};
use crate::objects::checksum_validity::{WATERMARK_FILE, Watermarks};
use crate::objects::io_throttle::IoThrottle;
use crate::objects::{ChecksumOutcome, DamagedObjects, ObjectId};
use forebay_protocol::{Errno, Ino, InstanceId};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;

/// File beside the directory of the objects with the time of the last scrub of all of them.
const SCRUB_FILE: &str = "last_scrub";

/// Failure to record a checksum generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordChecksumsError {
    /// Data could not be synced.
    SyncData(Errno),
    /// The watermarks could not be written.
    WriteWatermarks(Errno),
}

impl DiskObjects {
    /// Compute and store the checksums of an idle object. If the caller `yields`, a large object is
    /// skipped while others use the device.
    pub fn store_checksums(
        &self,
        id: ObjectId,
        yields: bool,
        stop: &AtomicBool,
    ) -> Result<ChecksumOutcome, Errno> {
        let file = self.open_for_scan(id)?;
        let validity = &self.validity;
        Ok(checksum::store_checksums(&file, validity, yields, stop)?)
    }

    /// Compare an object on the device with its checksums. Also returns its length in bytes.
    pub fn scrub_object(
        &self,
        id: ObjectId,
        throttle: &mut IoThrottle,
        stop: &AtomicBool,
    ) -> Result<(ScrubVerdict, u64), Errno> {
        let file = self.open_for_scan(id)?;
        let verdict = checksum::scrub_file(&file, &self.validity, throttle, stop)?;
        Ok((verdict, file.metadata()?.len()))
    }

    /// The objects in one of the [`FOLDERS`] of an instance, while others are created and removed.
    pub fn list_folder(&self, id: InstanceId, number: u64) -> Result<Vec<Ino>, Errno> {
        assert!(number < FOLDERS);
        let folder = self.instance_path(id).join(folder_name(Ino(number)));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let name = entry?.file_name();
            let ino = name.to_str().and_then(|name| u64::from_str_radix(name, 16).ok());
            found.extend(ino.map(Ino));
        }
        Ok(found)
    }

    /// A throttle for a scrub of at most this many bytes per second.
    pub fn scrub_throttle(&self, bytes_per_second: u64) -> IoThrottle {
        IoThrottle::with_rate(&*self.root_dir, bytes_per_second)
    }

    /// Log and remember that the data of an object do not match a checksum at `offset`.
    pub fn note_mismatch(&self, id: ObjectId, offset: u64) {
        self.damaged.note_mismatch(id, offset);
        self.clear_if_removed(id);
    }

    /// Log and remember that an object cannot be read.
    pub fn note_unreadable(&self, id: ObjectId, error: Errno) {
        self.damaged.note_unreadable(id, error);
        self.clear_if_removed(id);
    }

    /// A removal unlinks an object before it clears the damage. One that was removed while it was read
    /// would otherwise be remembered after that, for ever.
    fn clear_if_removed(&self, id: ObjectId) {
        if matches!(self.open_for_scan(id), Err(Errno::ENOENT)) {
            self.damaged.clear(id);
        }
    }

    /// The objects that are known to be damaged.
    pub fn damaged(&self) -> &DamagedObjects {
        &self.damaged
    }

    /// The time in seconds since 1970 at which [`note_scrubbed`](DiskObjects::note_scrubbed) was called
    /// last, perhaps before a restart.
    pub fn last_scrubbed(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.root.with_file_name(SCRUB_FILE)).ok()?;
        text.trim().parse().ok()
    }

    /// All objects were scrubbed at this time. It is not made durable: too early a scrub does no harm.
    pub fn note_scrubbed(&self, seconds: u64) -> io::Result<()> {
        let path = self.root.with_file_name(SCRUB_FILE);
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{seconds}\n"))?;
        std::fs::rename(&new, &path)
    }

    /// The valid checksums of an open object, if it has any.
    pub fn valid_checksums(&self, file: &File) -> Result<Option<BlockChecksums>, Errno> {
        self.validity.valid_checksums(&ObjectFile::new(file))
    }

    /// Invalidate the checksums of an object, durably if necessary. Blocks for the sync.
    pub fn invalidate_checksums(&self, id: ObjectId) -> Result<(), Errno> {
        match self.open_for_scan(id) {
            Ok(file) => self.validity.invalidate(&ObjectFile::new(&file)).map(drop),
            Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether there are checksums that a power failure would invalidate.
    pub fn has_unrecorded_checksums(&self) -> bool {
        self.validity.has_unrecorded()
    }

    /// Whether others keep the device busy. Blocks for 50 ms.
    pub fn is_device_busy(&self) -> bool {
        IoThrottle::for_file(&*self.root_dir).is_device_busy()
    }

    /// Sync all data and record that the checksums stored so far are valid after a power failure.
    /// After [`RecordChecksumsError::SyncData`] the extent of the loss is unknown, and this must
    /// not be called again.
    pub fn record_checksums_durable(&self) -> Result<(), RecordChecksumsError> {
        let Some(watermarks) = self.validity.close_generation() else {
            return Ok(());
        };
        self.sync_all().map_err(RecordChecksumsError::SyncData)?;
        self.write_watermarks(&watermarks).map_err(|error| {
            self.validity.mark_unrecorded();
            RecordChecksumsError::WriteWatermarks(error.into())
        })
    }

    fn write_watermarks(&self, watermarks: &Watermarks) -> io::Result<()> {
        let path = self.root.join(WATERMARK_FILE);
        let new = path.with_extension("new");
        let written = File::create(&new).and_then(|file| {
            file.write_all_at(&watermarks.encode(), 0)?;
            file.sync_all()
        });
        if let Err(error) = written {
            let _ = std::fs::remove_file(&new); // a partial file only takes space
            return Err(error);
        }
        std::fs::rename(&new, &path)?;
        self.root_dir.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Objects;
    use forebay_protocol::{InstanceId, Timestamp};

    #[test]
    fn damage_that_is_found_while_an_object_is_removed_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(dir.path()).unwrap();
        let instance = InstanceId(1);
        objects.add_instance(instance).unwrap();
        let [kept, removed] = [5, 6].map(|ino| ObjectId { instance, ino: Ino(ino) });
        let epoch = Timestamp::default();
        for id in [kept, removed] {
            objects.put_object(id, &[1; 100], (epoch, epoch)).unwrap();
            objects.note_mismatch(id, 7);
        }
        objects.remove(removed, 0).unwrap();
        objects.note_mismatch(removed, 7);
        objects.note_unreadable(removed, Errno::EIO);
        assert_eq!(objects.damaged().list(), [(kept, 7)]);
        objects.remove_instance(instance).unwrap();
        objects.note_mismatch(kept, 7);
        assert_eq!(objects.damaged().list(), []);
    }
}
