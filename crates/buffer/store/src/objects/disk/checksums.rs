//! Objects at rest: their checksums, and which of these last.

use super::DiskObjects;
use crate::objects::ObjectId;
use crate::objects::block_checksums::BlockChecksums;
use crate::objects::checksum::{self, ChecksumOutcome, ObjectFile, ScrubVerdict};
use crate::objects::checksum_validity::{self, Watermarks};
use crate::objects::io_throttle::IoThrottle;
use forebay_protocol::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Why checksums do not hold over power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordChecksumsError {
    /// Data cannot be made durable.
    SyncData(Errno),
    /// It cannot be recorded.
    WriteWatermarks(Errno),
}

impl DiskObjects {
    /// Take the checksums of an object that nobody writes to any more; of a large one not while
    /// others use the device, if it `yields`.
    pub fn store_checksums(
        &self,
        id: ObjectId,
        yields: bool,
        stop: &AtomicBool,
    ) -> Result<ChecksumOutcome, Errno> {
        let file = self.open_for_scan(id)?;
        Ok(checksum::store_checksums(
            &file,
            &self.lasting,
            yields,
            stop,
        )?)
    }

    /// Compare an object with its checksums; says its length, too.
    pub fn scrub_object(
        &self,
        id: ObjectId,
        stop: &AtomicBool,
    ) -> Result<(ScrubVerdict, u64), Errno> {
        let file = self.open_for_scan(id)?;
        let verdict = checksum::scrub_file(&file, &self.lasting, stop)?;
        Ok((verdict, file.metadata()?.len()))
    }

    /// The checksums of an open object, if it has some that hold.
    pub fn valid_checksums(&self, file: &File) -> Result<Option<BlockChecksums>, Errno> {
        self.lasting.valid_checksums(&ObjectFile::new(file))
    }

    /// Break an object's seal durably, if that is what opening it to write takes.
    pub fn invalidate_checksums(&self, id: ObjectId) -> Result<(), Errno> {
        match self.open_for_scan(id) {
            Ok(file) => self.lasting.invalidate(&ObjectFile::new(&file)),
            Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Were checksums taken that a power cut would end?
    pub fn has_unrecorded_checksums(&self) -> bool {
        self.lasting.has_unrecorded()
    }

    /// Do others use the device at the moment?
    pub fn is_device_busy(&self) -> bool {
        IoThrottle::for_file(&*self.whole).is_device_busy()
    }

    /// Make all data durable, and have the checksums taken so far hold over power cuts. After an
    /// error of the device nobody knows what was lost, and this is not to be called any more.
    pub fn record_checksums_durable(&self) -> Result<(), RecordChecksumsError> {
        let Some(marks) = self.lasting.close_generation() else {
            return Ok(());
        };
        self.sync_all().map_err(RecordChecksumsError::SyncData)?;
        self.write_marks(&marks).map_err(|error| {
            self.lasting.mark_unrecorded();
            RecordChecksumsError::WriteWatermarks(error.into())
        })
    }

    fn write_marks(&self, marks: &Watermarks) -> io::Result<()> {
        let path = self.root.join(checksum_validity::WATERMARK_FILE);
        let new = path.with_extension("new");
        let written = File::create(&new).and_then(|file| {
            file.write_all_at(&marks.encode(), 0)?;
            file.sync_all()
        });
        if let Err(error) = written {
            let _ = std::fs::remove_file(&new); // half of it is of no use on a full disk
            return Err(error);
        }
        std::fs::rename(&new, &path)?;
        self.whole.sync_all()
    }
}

/// The record of checksums that last. One that is damaged says nothing; one that cannot be read may
/// say something next time.
pub(super) fn read_watermarks(path: &Path) -> io::Result<Watermarks> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Watermarks::decode(&bytes).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "checksums from earlier starts of the host are not used");
            Watermarks::default()
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Watermarks::default()),
        Err(error) => Err(error),
    }
}
