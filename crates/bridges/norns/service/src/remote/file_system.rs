//! A dataspace of another node as a file system of the movers.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use forebay_stage::end::{DirHandle, FileHandle, FileStat, FileSystem, Metadata, SetXattrs};
use rustix::io::Errno;

use super::connection::Connection;
use super::wire::{
    Answer, AttributeOperation, DirectoryOperation, FileOperation, Handle, MAX_PAYLOAD_BYTES,
    Operation, Session,
};
use super::{NO_DESCRIPTOR, Network};

/// A dataspace of another node.
pub(crate) struct RemoteFileSystem(Arc<Connection>);

impl std::fmt::Debug for RemoteFileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteFileSystem").finish_non_exhaustive()
    }
}

/// An open file or directory there.
struct Open {
    connection: Arc<Connection>,
    handle: Handle,
    is_directory: bool,
    /// Its attributes when it was opened.
    stat: FileStat,
}

fn unexpected<T>() -> Result<T, Errno> {
    Err(Errno::PROTO)
}

fn done(answer: Answer) -> Result<(), Errno> {
    if let Answer::Done = answer { Ok(()) } else { unexpected() }
}

impl RemoteFileSystem {
    /// Connects to a node and begins a session there.
    pub fn connect(
        network: &Network,
        host: &str,
        session: &Session,
    ) -> Result<Arc<RemoteFileSystem>, Errno> {
        let connection = Connection::open(network, host, session)?;
        Ok(Arc::new(RemoteFileSystem(Arc::new(connection))))
    }

    /// Reserves bytes in the dataspace: `DQUOT` if that exceeds its capacity or the job's quota.
    pub fn reserve(&self, bytes: u64) -> Result<(), Errno> {
        done(self.0.call(Operation::Reserve(bytes), &[], &mut [])?.0)
    }

    /// Returns the reservation and counts what was added and removed.
    pub fn settle(&self, added: u64, removed: u64) -> Result<(), Errno> {
        done(self.0.call(Operation::Settle { added, removed }, &[], &mut [])?.0)
    }

    fn open_at(&self, operation: Operation, is_directory: bool) -> Result<Open, Errno> {
        let answer = self.0.call(operation, &[], &mut [])?.0;
        Open::new(&self.0, answer, is_directory)
    }
}

impl FileSystem for RemoteFileSystem {
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
        let path = path.as_os_str().as_bytes().to_vec();
        Ok(Box::new(self.open_at(Operation::OpenDirAt(path), true)?))
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno> {
        let path = path.as_os_str().as_bytes().to_vec();
        Ok(Box::new(self.open_at(Operation::OpenFileAt(path), false)?))
    }
}

impl Open {
    fn new(
        connection: &Arc<Connection>,
        answer: Answer,
        is_directory: bool,
    ) -> Result<Open, Errno> {
        match answer {
            Answer::Opened(handle, stat) => {
                Ok(Open { connection: connection.clone(), handle, is_directory, stat })
            }
            _ => unexpected(),
        }
    }

    fn attributes(&self, operation: AttributeOperation) -> Result<Answer, Errno> {
        if self.is_directory {
            self.directory(DirectoryOperation::Attributes(operation))
        } else {
            self.file(FileOperation::Attributes(operation))
        }
    }

    fn directory(&self, operation: DirectoryOperation) -> Result<Answer, Errno> {
        let operation = Operation::Directory(self.handle, operation);
        Ok(self.connection.call(operation, &[], &mut [])?.0)
    }

    fn file(&self, operation: FileOperation) -> Result<Answer, Errno> {
        Ok(self.connection.call(Operation::File(self.handle, operation), &[], &mut [])?.0)
    }

    fn open_entry(&self, operation: DirectoryOperation, is_directory: bool) -> Result<Open, Errno> {
        Open::new(&self.connection, self.directory(operation)?, is_directory)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.close(self.handle);
    }
}

fn name_bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

impl Metadata for Open {
    fn stat(&self) -> Result<FileStat, Errno> {
        match self.attributes(AttributeOperation::Stat)? {
            Answer::Stat(stat) => Ok(stat),
            _ => unexpected(),
        }
    }

    fn set_metadata(&self, stat: &FileStat, set_xattrs: SetXattrs<'_>) -> Result<(), Errno> {
        // The first call changes the owner, which may remove extended attributes, the second one
        // sets the times again after them. Until then nobody has access by an incomplete list.
        let private = FileStat { mode: stat.mode & !0o077, ..*stat };
        done(self.attributes(AttributeOperation::SetMetadata(private))?)?;
        let complete = FileStat { mode: set_xattrs(stat.mode), ..*stat };
        done(self.attributes(AttributeOperation::SetMetadata(complete))?)
    }

    fn list_xattr(&self) -> Result<Vec<Vec<u8>>, Errno> {
        match self.attributes(AttributeOperation::ListXattr)? {
            Answer::Names(names) => Ok(names),
            _ => unexpected(),
        }
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        match self.attributes(AttributeOperation::GetXattr(name.to_vec()))? {
            Answer::Bytes(value) => Ok(value),
            _ => unexpected(),
        }
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        done(self.attributes(AttributeOperation::SetXattr(name.to_vec(), value.to_vec()))?)
    }
}

impl DirHandle for Open {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(Box::new(self.open_entry(DirectoryOperation::Clone, true)?))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let Answer::Number(listing) = self.directory(DirectoryOperation::List)? else {
            return unexpected();
        };
        let outcome = loop {
            let answer = self.connection.call(Operation::NextEntries(listing), &[], &mut []);
            match answer.map(|(answer, _)| answer) {
                Ok(Answer::Entries(entries)) => {
                    let is_last = entries.is_empty();
                    let wants_more = entries.into_iter().all(|(name, stat)| {
                        take(OsStr::from_bytes(&name), stat.map_err(Errno::from_raw_os_error))
                    });
                    if is_last || !wants_more {
                        break Ok(());
                    }
                }
                Ok(_) => break unexpected(),
                Err(errno) => break Err(errno),
            }
        };
        self.connection.close(listing);
        outcome
    }

    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        match self.directory(DirectoryOperation::Lstat(name_bytes(name)))? {
            Answer::Stat(stat) => Ok(stat),
            _ => unexpected(),
        }
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(Box::new(self.open_entry(DirectoryOperation::OpenDir(name_bytes(name)), true)?))
    }

    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno> {
        match self.directory(DirectoryOperation::Mkdir(name_bytes(name)))? {
            Answer::Flag(created) => Ok(created),
            _ => unexpected(),
        }
    }

    fn open(&self, name: &OsStr, _: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno> {
        Ok(Box::new(self.open_entry(DirectoryOperation::Open(name_bytes(name)), false)?))
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno> {
        let create = DirectoryOperation::Create(name_bytes(name), keep);
        Ok(Box::new(self.open_entry(create, false)?))
    }

    fn readlink(&self, name: &OsStr, seen: &FileStat) -> Result<OsString, Errno> {
        match self.directory(DirectoryOperation::Readlink(name_bytes(name), *seen))? {
            Answer::Bytes(target) => Ok(OsString::from_vec(target)),
            _ => unexpected(),
        }
    }

    fn symlink(&self, name: &OsStr, link_target: &OsStr, stat: &FileStat) -> Result<(), Errno> {
        let target = name_bytes(link_target);
        done(self.directory(DirectoryOperation::Symlink(name_bytes(name), target, *stat))?)
    }

    fn link(&self, name: &OsStr, dir: &dyn DirHandle, existing: &OsStr) -> Result<(), Errno> {
        let (name, existing) = (name_bytes(name), name_bytes(existing));
        let directory = dir.stat()?.inode;
        done(self.directory(DirectoryOperation::Link { name, directory, existing })?)
    }

    fn unlink(&self, name: &OsStr) -> Result<(), Errno> {
        done(self.directory(DirectoryOperation::Unlink(name_bytes(name)))?)
    }

    fn rmdir(&self, name: &OsStr) -> Result<(), Errno> {
        done(self.directory(DirectoryOperation::Rmdir(name_bytes(name)))?)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        done(self.directory(DirectoryOperation::Rename(name_bytes(from), name_bytes(to)))?)
    }

    fn syncfs(&self) -> Result<(), Errno> {
        done(self.directory(DirectoryOperation::Sync)?)
    }

    fn device(&self) -> Result<u64, Errno> {
        match self.directory(DirectoryOperation::Device)? {
            Answer::Number(device) => Ok(device),
            _ => unexpected(),
        }
    }
}

impl FileHandle for Open {
    fn opened_stat(&self) -> Result<FileStat, Errno> {
        Ok(self.stat)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut have = 0;
        while have < into.len() {
            let length = (into.len() - have).min(MAX_PAYLOAD_BYTES);
            let at = offset + have as u64;
            let read = Operation::File(self.handle, FileOperation::Read(at, length as u64));
            let (answer, count) = self.connection.call(read, &[], &mut into[have..][..length])?;
            done(answer)?;
            have += count;
            if count < length {
                break;
            }
        }
        Ok(have)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        let mut at = offset;
        for piece in data.chunks(MAX_PAYLOAD_BYTES) {
            let write = Operation::File(self.handle, FileOperation::Write(at));
            done(self.connection.call(write, piece, &mut [])?.0)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        match self.file(FileOperation::Seek(offset, hole))? {
            Answer::Number(found) => Ok(found),
            _ => unexpected(),
        }
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        done(self.file(FileOperation::Truncate(size))?)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        NO_DESCRIPTOR
    }

    fn reserve_space(&self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        done(self.file(FileOperation::Sync)?)
    }

    fn needs_fdatasync(&self) -> bool {
        false
    }
}
