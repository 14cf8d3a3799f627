//! The operations of an instance's file system, by inode.

use crate::file::File;
use crate::session::{Options, Session};
use forebay_wire::message::{Entry, New, OnExisting, OpenMode, SetAttr, XattrMode};
use forebay_wire::stream::Address;
use forebay_wire::{Attr, Caller, Errno, Ino, InstanceId, Reply, Request};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// An attached instance. Clones share the session; it ends with the last of them and of its files.
#[derive(Clone, Debug)]
pub struct Fs {
    pub(crate) session: Arc<Session>,
    caller: Option<Caller>,
    /// Files being written, whose unused promises of space can be given back when it runs out.
    pub(crate) writers: Arc<Mutex<Vec<Weak<File>>>>,
}

/// A file that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: Arc<File>,
    /// Its attributes.
    pub attr: Attr,
    /// It was made by this request.
    pub created: bool,
    /// How long the attributes may be believed.
    pub(crate) valid: Duration,
}

/// Some entries of a directory.
#[derive(Debug)]
pub struct DirPage {
    /// The entries; the last one's cookie continues from there.
    pub entries: Vec<Entry>,
    /// Nothing follows.
    pub end: bool,
    /// How long all that may be believed.
    pub(crate) valid: Duration,
}

/// Capacity and use of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}

impl Fs {
    /// Attach to an instance on the daemon at `address`.
    pub fn attach(address: Address, instance: InstanceId, options: Options) -> Result<Fs, Errno> {
        let session = Arc::new(Session::begin(address, Some(instance), options, false)?);
        Ok(Fs {
            session,
            caller: None,
            writers: Arc::default(),
        })
    }

    /// The same session, on behalf of someone else. Only root and the daemon's user may do so.
    pub fn on_behalf_of(&self, caller: Caller) -> Fs {
        Fs {
            caller: Some(caller),
            ..self.clone()
        }
    }

    pub(crate) fn call(&self, request: Request) -> Result<Reply, Errno> {
        self.session
            .call(self.caller.as_ref(), request)
            .map(|said| said.reply)
    }

    /// Another session with the same instance, which is told what may be cached.
    pub(crate) fn for_cache(&self) -> Result<Fs, Errno> {
        let session = Arc::new(self.session.another_for_cache()?);
        Ok(Fs {
            session,
            caller: self.caller.clone(),
            writers: Arc::default(),
        })
    }

    /// Make a request that is answered with attributes, and say how long they may be believed.
    pub(crate) fn attr_for(&self, request: Request) -> Result<(Attr, Duration), Errno> {
        let said = self.session.call(self.caller.as_ref(), request)?;
        match said.reply {
            Reply::Attr(attr) => Ok((attr, said.valid)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// What `name` is, or that it is nothing, and how long either may be believed.
    pub(crate) fn lookup_for(
        &self,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Option<Attr>, Duration), Errno> {
        let name = name.to_vec();
        let said = self
            .session
            .ask(self.caller.as_ref(), Request::Lookup { parent, name })?;
        match said.reply {
            Reply::Attr(attr) => Ok((Some(attr), said.valid)),
            Reply::Failed(Errno::ENOENT) => Ok((None, said.valid)),
            Reply::Failed(errno) => Err(errno),
            _ => Err(Errno::EPROTO),
        }
    }

    fn attr(&self, request: Request) -> Result<Attr, Errno> {
        self.attr_for(request).map(|(attr, _)| attr)
    }

    fn done(&self, request: Request) -> Result<(), Errno> {
        self.call(request).map(|_| ())
    }

    /// Attributes of an entry.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, Errno> {
        self.attr(Request::Lookup {
            parent,
            name: name.to_vec(),
        })
    }

    /// Attributes of an inode.
    pub fn get_attr(&self, ino: Ino) -> Result<Attr, Errno> {
        self.attr(Request::GetAttr { ino })
    }

    /// Change attributes. `file`: the open file through which it is done, if any.
    pub fn set_attr(&self, ino: Ino, file: Option<&File>, set: SetAttr) -> Result<Attr, Errno> {
        self.attr(Request::SetAttr {
            ino,
            handle: file.map(File::handle),
            set,
        })
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        self.bytes(Request::ReadLink { ino })
    }

    fn bytes(&self, request: Request) -> Result<Vec<u8>, Errno> {
        match self.call(request)? {
            Reply::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Entries behind `cookie`, some `bytes` of them, with attributes if `attrs`.
    pub fn read_dir(
        &self,
        ino: Ino,
        cookie: u64,
        bytes: u32,
        attrs: bool,
    ) -> Result<DirPage, Errno> {
        let request = Request::ReadDir {
            ino,
            cookie,
            bytes,
            attrs,
        };
        let said = self.session.call(self.caller.as_ref(), request)?;
        match said.reply {
            Reply::Entries { entries, end } => Ok(DirPage {
                entries,
                end,
                valid: said.valid,
            }),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Make a directory, symbolic link, pipe, socket or device, or a file without opening it.
    pub fn make(&self, parent: Ino, name: &[u8], new: New, mode: u16) -> Result<Attr, Errno> {
        self.attr(Request::Make {
            parent,
            name: name.to_vec(),
            new,
            mode,
        })
    }

    /// Make a directory.
    pub fn mkdir(&self, parent: Ino, name: &[u8], mode: u16) -> Result<Attr, Errno> {
        self.make(parent, name, New::Dir, mode)
    }

    /// Make and open a file; if it exists open that, or fail if `exclusive`.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u16,
        exclusive: bool,
        open: OpenMode,
    ) -> Result<Opened, Errno> {
        let handle = self.session.new_handle();
        let name = name.to_vec();
        self.opened(
            handle,
            open,
            Request::Create {
                parent,
                name,
                mode,
                exclusive,
                handle,
                open,
            },
        )
    }

    /// Open a file or directory.
    pub fn open(&self, ino: Ino, open: OpenMode) -> Result<Opened, Errno> {
        let handle = self.session.new_handle();
        self.opened(handle, open, Request::Open { ino, handle, open })
    }

    fn opened(
        &self,
        handle: forebay_wire::HandleId,
        mode: OpenMode,
        request: Request,
    ) -> Result<Opened, Errno> {
        let said = self.session.call(self.caller.as_ref(), request)?;
        let Reply::Opened { attr, created, .. } = said.reply else {
            return Err(Errno::EPROTO);
        };
        self.session.remember(handle, attr.ino, mode);
        let file = File::new(self.clone(), attr.ino, handle, mode, said.descriptor);
        Ok(Opened {
            file,
            attr,
            created,
            valid: said.valid,
        })
    }

    /// Remove a name of something that is not a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        self.done(Request::Unlink {
            parent,
            name: name.to_vec(),
        })
    }

    /// Remove an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        self.done(Request::RmDir {
            parent,
            name: name.to_vec(),
        })
    }

    /// Change a name.
    pub fn rename(
        &self,
        (parent, name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        existing: OnExisting,
    ) -> Result<(), Errno> {
        let (name, to_name) = (name.to_vec(), to_name.to_vec());
        self.done(Request::Rename {
            parent,
            name,
            to,
            to_name,
            existing,
        })
    }

    /// Give a file a further name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr, Errno> {
        self.attr(Request::Link {
            ino,
            parent,
            name: name.to_vec(),
        })
    }

    /// Set an extended attribute.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        let (name, value) = (name.to_vec(), value.to_vec());
        self.done(Request::SetXattr {
            ino,
            name,
            value,
            mode,
        })
    }

    /// Value of an extended attribute; `ENODATA` if there is none.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.bytes(Request::GetXattr {
            ino,
            name: name.to_vec(),
        })
    }

    /// Names of extended attributes.
    pub fn list_xattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        match self.call(Request::ListXattr { ino })? {
            Reply::Names(names) => Ok(names),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Remove an extended attribute.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        self.done(Request::RemoveXattr {
            ino,
            name: name.to_vec(),
        })
    }

    /// Make all changes of names and attributes so far durable.
    pub fn sync(&self) -> Result<(), Errno> {
        self.done(Request::Sync {
            handle: None,
            data_only: false,
        })
    }

    /// Capacity and use.
    pub fn stat_fs(&self) -> Result<StatFs, Errno> {
        match self.call(Request::StatFs)? {
            Reply::StatFs {
                capacity,
                used,
                inodes,
                inodes_used,
            } => Ok(StatFs {
                capacity,
                used,
                inodes,
                inodes_used,
            }),
            _ => Err(Errno::EPROTO),
        }
    }
}
