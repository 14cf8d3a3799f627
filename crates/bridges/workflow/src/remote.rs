//! The data of a workflow on another node as a [`FileSystem`], from which a stage can copy. It is
//! only read.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::sync::Arc;

use forebay_net::auth::Authenticator;
use forebay_stage::end::{DirHandle, FileHandle, FileStat, FileSystem, Metadata, SetXattrs};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::channel::Client;
use crate::node_calls::{Access, MAX_READ, NodeReply, NodeRequest};

/// One connection to the server of a node.
type Shared = Arc<Mutex<Client>>;

/// The data of a workflow in a dataspace of another node. Paths are relative to them.
pub struct RemoteFileSystem {
    client: Shared,
    root: u64,
}

impl fmt::Debug for RemoteFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteFileSystem").finish_non_exhaustive()
    }
}

impl RemoteFileSystem {
    /// Connects to a node and opens the directory; `None` if the node has none.
    pub fn open(
        at: SocketAddr,
        auth: &Authenticator,
        (uid, gid): (u32, u32),
        dataspace: &str,
        directory: u32,
    ) -> Result<Option<RemoteFileSystem>, String> {
        let mut client = Client::connect(at, auth).map_err(|error| error.to_string())?;
        let dataspace = dataspace.to_owned();
        let request = NodeRequest::OpenRoot { uid, gid, dataspace, directory };
        match client.call(&request).map_err(|error| error.to_string())? {
            NodeReply::Handle(root) => {
                Ok(Some(RemoteFileSystem { client: Arc::new(Mutex::new(client)), root }))
            }
            NodeReply::Errno(errno) if Errno::from_raw_os_error(errno) == Errno::NOENT => Ok(None),
            NodeReply::Errno(errno) => Err(std::io::Error::from_raw_os_error(errno).to_string()),
            NodeReply::Failed(reason) => Err(reason),
            other => Err(format!("unexpected reply {other:?}")),
        }
    }

    fn root(&self) -> Remote {
        // The root stays open as long as the connection.
        Remote { client: self.client.clone(), handle: self.root, closes: false }
    }
}

impl FileSystem for RemoteFileSystem {
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
        let mut here: Box<dyn DirHandle> = Box::new(self.root());
        for component in path.components() {
            match component {
                Component::Normal(name) => here = here.open_dir(name)?,
                Component::CurDir => {}
                Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                    return Err(Errno::XDEV);
                }
            }
        }
        Ok(here)
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        self.open_dir(path.parent().unwrap_or(Path::new("")))?.open(name, None)
    }
}

/// An open file or directory of the other node.
struct Remote {
    client: Shared,
    handle: u64,
    closes: bool,
}

impl Drop for Remote {
    fn drop(&mut self) {
        if self.closes {
            // Without a connection nothing is open.
            let _ = self.access(Access::Close);
        }
    }
}

impl Remote {
    fn access(&self, access: Access) -> Result<NodeReply, Errno> {
        self.access_with_payload(access, &mut []).map(|(reply, _)| reply)
    }

    fn access_with_payload(
        &self,
        access: Access,
        into: &mut [u8],
    ) -> Result<(NodeReply, usize), Errno> {
        let request = NodeRequest::Access { handle: self.handle, access };
        let called = self.client.lock().call_with_payload(&request, into);
        // Like a file server that is gone: it stops the stage.
        match called.map_err(|_| Errno::NOTCONN)? {
            (NodeReply::Errno(errno), _) => Err(Errno::from_raw_os_error(errno)),
            (NodeReply::Failed(_), _) => Err(Errno::IO),
            answered => Ok(answered),
        }
    }

    fn open(&self, access: Access) -> Result<Remote, Errno> {
        match self.access(access)? {
            NodeReply::Handle(handle) => {
                Ok(Remote { client: self.client.clone(), handle, closes: true })
            }
            _ => Err(Errno::PROTO),
        }
    }

    fn bytes(&self, access: Access) -> Result<Vec<u8>, Errno> {
        match self.access(access)? {
            NodeReply::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::PROTO),
        }
    }

    fn number(&self, access: Access) -> Result<u64, Errno> {
        match self.access(access)? {
            NodeReply::Number(number) => Ok(number),
            _ => Err(Errno::PROTO),
        }
    }

    fn attributes(&self, access: Access) -> Result<FileStat, Errno> {
        match self.access(access)? {
            NodeReply::Stat(stat) => Ok(stat.into()),
            _ => Err(Errno::PROTO),
        }
    }
}

fn name_bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Metadata for Remote {
    fn stat(&self) -> Result<FileStat, Errno> {
        self.attributes(Access::Stat)
    }

    fn set_metadata(&self, _: &FileStat, _: SetXattrs<'_>) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn list_xattr(&self) -> Result<Vec<Vec<u8>>, Errno> {
        match self.access(Access::ListXattr)? {
            NodeReply::List(names) => Ok(names),
            _ => Err(Errno::PROTO),
        }
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.bytes(Access::GetXattr(name.to_vec()))
    }

    fn set_xattr(&self, _: &[u8], _: &[u8]) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }
}

impl DirHandle for Remote {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(Box::new(self.open(Access::Clone)?))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let NodeReply::Entries(entries) = self.access(Access::ReadDir)? else {
            return Err(Errno::PROTO);
        };
        for (name, found) in entries {
            let found = found.map(FileStat::from).map_err(Errno::from_raw_os_error);
            if !take(OsStr::from_bytes(&name), found) {
                break;
            }
        }
        Ok(())
    }

    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        self.attributes(Access::Lstat(name_bytes(name)))
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(Box::new(self.open(Access::OpenDir(name_bytes(name)))?))
    }

    fn mkdir(&self, _: &OsStr) -> Result<bool, Errno> {
        Err(Errno::ROFS)
    }

    fn open(&self, name: &OsStr, _: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno> {
        Ok(Box::new(Remote::open(self, Access::OpenFile(name_bytes(name)))?))
    }

    fn create(&self, _: &OsStr, _: bool) -> Result<Box<dyn FileHandle>, Errno> {
        Err(Errno::ROFS)
    }

    fn readlink(&self, name: &OsStr, _: &FileStat) -> Result<OsString, Errno> {
        self.bytes(Access::Readlink(name_bytes(name))).map(OsString::from_vec)
    }

    fn symlink(&self, _: &OsStr, _: &OsStr, _: &FileStat) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn link(&self, _: &OsStr, _: &dyn DirHandle, _: &OsStr) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn unlink(&self, _: &OsStr) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn rmdir(&self, _: &OsStr) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn rename(&self, _: &OsStr, _: &OsStr) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn syncfs(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn device(&self) -> Result<u64, Errno> {
        self.number(Access::Device)
    }
}

impl FileHandle for Remote {
    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut done = 0;
        while done < into.len() {
            let end = into.len().min(done + MAX_READ);
            let piece = into.get_mut(done..end).ok_or(Errno::INVAL)?;
            let length = u32::try_from(piece.len()).map_err(|_| Errno::INVAL)?;
            let access = Access::Read { offset: offset + done as u64, length };
            let (_, read) = self.access_with_payload(access, piece)?;
            if read == 0 {
                break;
            }
            done += read;
        }
        assert!(done <= into.len());
        Ok(done)
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        self.number(Access::Seek { offset, hole })
    }

    fn truncate(&self, _: u64) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn reserve_space(&self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::ROFS)
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn needs_fdatasync(&self) -> bool {
        false
    }
}
