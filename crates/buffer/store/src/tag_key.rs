//! The secret of the tags of inode numbers, for instances that lie on one node alone. It is kept in
//! the directory of the log, so that the tags of clients are valid after a restart.

use crate::storage::{Storage, is_out_of_space};
use std::io;

const FILE: &str = "tag_key";
const TEMPORARY: &str = "tag_key.tmp";

/// The kept secret, or `fresh`, which is kept then. Without space for that it is kept by a later
/// start.
pub fn load_tag_key<S: Storage>(storage: &S, fresh: [u8; 32]) -> io::Result<[u8; 32]> {
    match storage.read_file(FILE) {
        Ok(bytes) => {
            let key = <[u8; 32]>::try_from(&bytes[..]);
            key.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not 32 bytes; remove it"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match keep(storage, &fresh) {
            Err(error) if !is_out_of_space(&error) => Err(error),
            Ok(()) | Err(_) => Ok(fresh),
        },
        Err(error) => Err(error),
    }
}

fn keep<S: Storage>(storage: &S, key: &[u8; 32]) -> io::Result<()> {
    storage.create_file(TEMPORARY, key.len() as u64)?;
    storage.write_file(TEMPORARY, 0, key)?;
    storage.sync_file(TEMPORARY)?;
    storage.rename_file(TEMPORARY, FILE)?;
    storage.sync_directory()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::DiskStorage;

    #[test]
    fn key_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(home.path()).unwrap();
        assert_eq!(load_tag_key(&storage, [1; 32]).unwrap(), [1; 32]);
        assert_eq!(load_tag_key(&storage, [2; 32]).unwrap(), [1; 32]);
        std::fs::write(home.path().join(FILE), "short").unwrap();
        assert!(load_tag_key(&storage, [3; 32]).is_err());
    }
}
