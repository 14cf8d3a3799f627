//! The secret of the tags of inode numbers, for instances that lie on one node alone. It is kept in
//! the directory of the log, so that the tags of clients are valid after a restart.

use crate::storage::{Storage, is_out_of_space, replace_file};
use std::io;

const FILE: &str = "tag_key";

/// The kept secret; or `fresh`, which is kept then, if there is none or it is damaged: clients that are
/// not trusted have to look names up again. Without space a later start keeps one.
pub fn load_tag_key<S: Storage>(storage: &S, fresh: [u8; 32]) -> io::Result<[u8; 32]> {
    match storage.read_file(FILE) {
        Ok(bytes) => match <[u8; 32]>::try_from(&bytes[..]) {
            Ok(key) => return Ok(key),
            Err(_) => tracing::warn!("{FILE} is damaged and replaced"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    match replace_file(storage, FILE, &fresh) {
        Err(error) if is_out_of_space(&error) => {
            tracing::warn!(%error, "{FILE} is not kept: it will be another one after a restart");
            Ok(fresh)
        }
        kept => kept.map(|()| fresh),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::DiskStorage;

    #[test]
    fn key_is_kept_and_a_damaged_one_replaced() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(home.path()).unwrap();
        assert_eq!(load_tag_key(&storage, [1; 32]).unwrap(), [1; 32]);
        assert_eq!(load_tag_key(&storage, [2; 32]).unwrap(), [1; 32]);
        std::fs::write(home.path().join(FILE), "short").unwrap();
        for fresh in [[3; 32], [4; 32]] {
            assert_eq!(load_tag_key(&storage, fresh).unwrap(), [3; 32]);
        }
    }
}
