//! Failed syncs of data objects. The kernel reports a write error to each open file once, and the data are
//! lost then. Whoever wrote some of them must nevertheless learn it from the next sync: also if the reply
//! is lost, and if the daemon restarts before, which closes its files.

use crate::storage::{Storage, replace_file};
use forebay_protocol::Errno;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;

/// The syncs of an open handle.
#[derive(Debug, Default)]
pub struct HandleSyncs {
    /// The last call of each slot that failed, by its number.
    failed: Mutex<BTreeMap<u32, (u64, Errno)>>,
}

impl HandleSyncs {
    /// Carry out the sync that a call requests, by slot and number. Others of the handle wait.
    ///
    /// # Errors
    /// That of `sync`; or, for the repetition of a call, that of the first time.
    pub fn sync(
        &self,
        (slot, seq): (u32, u64),
        sync: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut failed = self.failed.lock();
        if let Some((_, errno)) = failed.get(&slot).filter(|(call, _)| *call == seq) {
            return Err(*errno);
        }
        let synced = sync();
        match synced {
            Ok(()) => drop(failed.remove(&slot)),
            Err(errno) => drop(failed.insert(slot, (seq, errno))),
        }
        synced
    }
}

const FILE: &str = "failed_syncs";

/// The number of failed syncs of objects on this disk, which outlives the daemon.
///
/// # Errors
/// The file cannot be read.
pub fn failed_syncs<S: Storage>(storage: &S) -> io::Result<u64> {
    match storage.read_file(FILE) {
        // A damaged one counts as another number.
        Ok(bytes) => Ok(<[u8; 8]>::try_from(&bytes[..]).map_or(u64::MAX / 2, u64::from_le_bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Record that a sync has failed. After a restart nobody can tell who wrote data that were lost.
pub(crate) fn note_failed_sync<S: Storage>(storage: &S) {
    let noted = failed_syncs(storage)
        .and_then(|count| replace_file(storage, FILE, &count.wrapping_add(1).to_le_bytes()));
    if let Err(error) = noted {
        tracing::error!(%error, "cannot record that a sync failed: if the daemon restarts, clients that \
            have not synced yet are not told");
    }
}

/// The number by which clients find out that unsynced data may be lost, for the boot of the host with
/// the number `boot`: another one after a failed sync.
pub fn boot_after(boot: u64, failed_syncs: u64) -> u64 {
    match failed_syncs {
        0 => boot,
        count => (boot ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::DiskStorage;

    #[test]
    fn repetition_of_a_failed_sync_fails() {
        let syncs = HandleSyncs::default();
        assert_eq!(syncs.sync((0, 1), || Err(Errno::EIO)), Err(Errno::EIO));
        // The kernel has reported the error to this file.
        assert_eq!(syncs.sync((1, 1), || Ok(())), Ok(()));
        assert_eq!(syncs.sync((0, 1), || Ok(())), Err(Errno::EIO));
        assert_eq!(syncs.sync((0, 1), || panic!("it was carried out")), Err(Errno::EIO));
        assert_eq!(syncs.sync((0, 2), || Ok(())), Ok(()));
        assert!(syncs.failed.lock().is_empty());
    }

    #[test]
    fn failed_syncs_are_counted_beyond_a_restart() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(home.path()).unwrap();
        assert_eq!(boot_after(5, failed_syncs(&storage).unwrap()), 5);
        let mut seen = vec![5];
        for count in 1..4 {
            note_failed_sync(&storage);
            let storage = DiskStorage::open(home.path()).unwrap();
            assert_eq!(failed_syncs(&storage).unwrap(), count);
            let boot = boot_after(5, count);
            assert!(!seen.contains(&boot) && boot != 0);
            seen.push(boot);
        }
    }
}
