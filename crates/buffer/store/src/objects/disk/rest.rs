//! Objects at rest: their checksums, and which of these last.

use super::DiskObjects;
use crate::objects::ObjectId;
use crate::objects::block_checksums::Seal;
use crate::objects::lasting::{self, Marks};
use crate::objects::pace::Pace;
use crate::objects::seal::{self, Opened, Sealed, Verdict};
use forebay_protocol::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Why checksums do not hold over power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastError {
    /// Data cannot be made durable.
    Data(Errno),
    /// It cannot be recorded.
    Marks(Errno),
}

impl DiskObjects {
    /// Take the checksums of an object that nobody writes to any more; of a large one not while
    /// others use the device, if it `yields`.
    pub fn seal(&self, id: ObjectId, yields: bool, stop: &AtomicBool) -> Result<Sealed, Errno> {
        let file = self.looked_at(id)?;
        Ok(seal::seal(&file, &self.lasting, yields, stop)?)
    }

    /// Compare an object with its checksums; says its length, too.
    pub fn check(&self, id: ObjectId, stop: &AtomicBool) -> Result<(Verdict, u64), Errno> {
        let file = self.looked_at(id)?;
        let verdict = seal::check(&file, &self.lasting, stop)?;
        Ok((verdict, file.metadata()?.len()))
    }

    /// The checksums of an open object, if it has some that hold.
    pub fn seal_of(&self, file: &File) -> Result<Option<Seal>, Errno> {
        self.lasting.seal_of(&Opened::new(file))
    }

    /// Break an object's seal durably, if that is what opening it to write takes.
    pub fn unseal(&self, id: ObjectId) -> Result<(), Errno> {
        match self.looked_at(id) {
            Ok(file) => self.lasting.break_seal(&Opened::new(&file)),
            Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Were checksums taken that a power cut would end?
    pub fn has_fresh_seals(&self) -> bool {
        self.lasting.has_fresh()
    }

    /// Do others use the device at the moment?
    pub fn is_device_busy(&self) -> bool {
        Pace::of(&*self.whole).others_are_busy()
    }

    /// Make all data durable, and have the checksums taken so far hold over power cuts. After an
    /// error of the device nobody knows what was lost, and this is not to be called any more.
    pub fn make_seals_last(&self) -> Result<(), LastError> {
        let Some(marks) = self.lasting.close() else {
            return Ok(());
        };
        self.sync_all().map_err(LastError::Data)?;
        self.write_marks(&marks).map_err(|error| {
            self.lasting.reopen();
            LastError::Marks(error.into())
        })
    }

    fn write_marks(&self, marks: &Marks) -> io::Result<()> {
        let path = self.root.join(lasting::FILE);
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
pub(super) fn read_marks(path: &Path) -> io::Result<Marks> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Marks::decode(&bytes).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "checksums from earlier starts of the host are not used");
            Marks::default()
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Marks::default()),
        Err(error) => Err(error),
    }
}
