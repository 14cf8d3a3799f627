//! Tags of inode numbers: proof that a user has reached an inode by names.

use crate::ids::{Ino, InstanceId};
use serde::{Deserialize, Serialize};

/// Proof that a user has reached an inode by names, through directories that the user could search
/// at that time. A storage daemon sends it to a client that is not trusted, and accepts no inode
/// number but [`Ino::ROOT`] of such a client without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InodeTag(pub u64);

impl InodeTag {
    /// The tag of an inode for user `uid`: a hash that is keyed with a secret of the storage nodes.
    pub fn new(key: &[u8; 32], instance: InstanceId, uid: u32, ino: Ino) -> InodeTag {
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher
            .update(b"forebay inode tag 1")
            .update(&instance.0.to_le_bytes())
            .update(&uid.to_le_bytes())
            .update(&ino.0.to_le_bytes());
        let mut tag = [0; 8];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        InodeTag(u64::from_le_bytes(tag))
    }
}
