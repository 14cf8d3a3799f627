//! Small files that are created and read completely with one request each.

use super::Fs;
use forebay_protocol::message::{InodeRequest, MAX_INLINE_FILE_BYTES, NameRequest, SetAttr};
use forebay_protocol::{Attr, Errno, Ino};

impl Fs {
    /// Creates a regular file with contents, attributes and name at once, replacing what has the
    /// name, which must not be a directory. Attributes missing in `set` are those of a file created
    /// with mode 0o600. [`sync`](Fs::sync) makes the contents durable, too.
    ///
    /// `EOPNOTSUPP` if this file has to be created step by step: it is longer than
    /// [`MAX_INLINE_FILE_BYTES`], or replaces an inode on another storage node.
    pub fn put_file(
        &self,
        (parent, name): (Ino, &[u8]),
        set: SetAttr,
        data: Vec<u8>,
    ) -> Result<Attr, Errno> {
        if data.len() > MAX_INLINE_FILE_BYTES {
            return Err(Errno::EOPNOTSUPP);
        }
        let name = name.to_vec();
        let request = NameRequest::PutFile { parent, name, set: Box::new(set), data };
        let created = self.attr(parent.metadata_node(), request)?;
        self.requester.attachment.reservations.record_removal();
        Ok(created)
    }

    /// Attributes and contents of a regular file at one moment. `EOPNOTSUPP` if it has to be opened
    /// for that: it is longer than [`MAX_INLINE_FILE_BYTES`], or open for writing.
    pub fn fetch_file(&self, ino: Ino) -> Result<(Attr, Vec<u8>), Errno> {
        whole_file(self.requester.call(ino.metadata_node(), InodeRequest::GetFile { ino })?)
    }

    /// Whether the metadata node of `ino` is on this host.
    pub fn is_local(&self, ino: Ino) -> Result<bool, Errno> {
        Ok(self.sessions().session(ino.metadata_node())?.is_local())
    }
}

/// Attributes and contents of a file as a storage node has sent them.
pub(super) fn whole_file((attr, data): (Attr, Vec<u8>)) -> Result<(Attr, Vec<u8>), Errno> {
    if data.len() as u64 == attr.size { Ok((attr, data)) } else { Err(Errno::EPROTO) }
}
