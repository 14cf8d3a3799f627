//! Small files that are made and read whole, with one request each.

use super::Fs;
use forebay_protocol::message::{InodeRequest, NameRequest};
use forebay_protocol::message::{MAX_INLINE_FILE_BYTES, SetAttr};
use forebay_protocol::{Attr, Errno, Ino, Reply, Request};

impl Fs {
    /// Make a regular file with contents, attributes and name at once, in place of what has the
    /// name, which must not be a directory. What `set` leaves out is as for a file made with mode
    /// 0o600. [`sync`](Fs::sync) makes its contents durable, too.
    ///
    /// `EOPNOTSUPP`: this file has to be made step by step, as one that is longer than
    /// [`MAX_WHOLE`], or takes the name of something on another storage node.
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
        let request = Request::Name(NameRequest::PutFile {
            parent,
            name,
            set: Box::new(set),
            data,
        });
        let made = self.attr(parent.metadata_node(), request)?;
        self.removals.record();
        Ok(made)
    }

    /// Attributes and contents of a regular file, as they are at one moment. `EOPNOTSUPP`: it has
    /// to be opened for that, as one that is longer than [`MAX_WHOLE`], or is being written.
    pub fn fetch_file(&self, ino: Ino) -> Result<(Attr, Vec<u8>), Errno> {
        match self.call(
            ino.metadata_node(),
            Request::Inode(InodeRequest::GetFile { ino }),
        )? {
            Reply::FileContents { attr, data } if data.len() as u64 == attr.size => {
                Ok((attr, data))
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Is the storage daemon that is the home of `ino` on this host?
    pub fn is_local(&self, ino: Ino) -> Result<bool, Errno> {
        Ok(self.sessions.session(ino.metadata_node())?.is_local())
    }
}
