//! Carrying out operations of another node's movers on this node.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_stage::end::{DirHandle, FileHandle, FileSystem, Metadata};
use rustix::io::Errno;

use super::wire::{
    Answer, AttributeOperation, Call, DirectoryOperation, FileOperation, Handle, MAX_ENTRIES,
    Operation, Session, WireEntry, component,
};
use crate::service::Context;

/// Maximum open files, directories and listings of a session.
const MAX_HANDLES: usize = 4096;
/// Maximum entries of a directory that is listed.
const MAX_LISTING: usize = 4 << 20;

enum Opened {
    Directory(Box<dyn DirHandle>),
    File(Box<dyn FileHandle>),
    Listing(VecDeque<WireEntry>),
}

/// The open files of one session, and what it has reserved.
pub(super) struct Files<'a> {
    ctx: &'a Context,
    session: Session,
    fs: Arc<dyn FileSystem>,
    mount: PathBuf,
    handles: HashMap<Handle, Opened>,
    next: Handle,
    reserved: u64,
}

impl<'a> Files<'a> {
    pub fn new(
        ctx: &'a Context,
        session: Session,
        mount: PathBuf,
        fs: Arc<dyn FileSystem>,
    ) -> Files<'a> {
        Files { ctx, session, fs, mount, handles: HashMap::new(), next: 0, reserved: 0 }
    }

    /// Carries out a call with its payload. Returns the bytes in `out`, the answer's payload.
    pub fn answer(&mut self, call: Call, payload: &[u8], out: &mut [u8]) -> (Answer, usize) {
        for handle in call.closed {
            self.handles.remove(&handle);
        }
        let answer = match call.operation {
            Operation::File(handle, FileOperation::Read(offset, length)) => {
                match self.read(handle, offset, length, out) {
                    Ok(count) => return (Answer::Done, count),
                    Err(errno) => Err(errno),
                }
            }
            operation => self.carry_out(operation, payload),
        };
        (answer.unwrap_or_else(|errno| Answer::Failed(errno.raw_os_error())), 0)
    }

    fn read(
        &self,
        handle: Handle,
        offset: u64,
        length: u64,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(out.len());
        self.file(handle)?.read_at(&mut out[..length], offset)
    }

    fn carry_out(&mut self, operation: Operation, payload: &[u8]) -> Result<Answer, Errno> {
        match operation {
            Operation::OpenDirAt(path) => {
                let dir = self.fs.open_dir(&self.path(&path)?)?;
                self.add_directory(dir)
            }
            Operation::OpenFileAt(path) => {
                let file = self.fs.open_file(&self.path(&path)?)?;
                self.add_file(file)
            }
            Operation::Directory(handle, operation) => self.in_directory(handle, operation),
            Operation::File(handle, operation) => in_file(self.file(handle)?, operation, payload),
            Operation::NextEntries(handle) => match self.handles.get_mut(&handle) {
                Some(Opened::Listing(entries)) => {
                    let count = entries.len().min(MAX_ENTRIES);
                    Ok(Answer::Entries(entries.drain(..count).collect()))
                }
                _ => Err(Errno::BADF),
            },
            Operation::Reserve(bytes) => {
                let (job, nsid) = (self.session.job, &self.session.nsid);
                if !self.ctx.registry.lock().reserve(job, nsid, bytes) {
                    return Err(Errno::DQUOT);
                }
                self.reserved += bytes;
                Ok(Answer::Done)
            }
            Operation::Settle { added, removed } => {
                self.release();
                self.ctx.charge(self.session.job, &self.session.nsid, added, removed);
                Ok(Answer::Done)
            }
        }
    }

    fn release(&mut self) {
        let bytes = std::mem::take(&mut self.reserved);
        self.ctx.registry.lock().release(self.session.job, &self.session.nsid, bytes);
    }

    /// A received path, below the mount point: the other service has resolved it, but a component
    /// `..` is refused, and symbolic links are followed here.
    fn path(&self, path: &[u8]) -> Result<PathBuf, Errno> {
        let path = Path::new(OsStr::from_bytes(path));
        let mut below = PathBuf::new();
        for part in path.components().skip_while(|part| *part == std::path::Component::RootDir) {
            below.push(component(part.as_os_str().as_bytes())?);
        }
        Ok(self.mount.join(below))
    }

    fn add(&mut self, opened: Opened) -> Result<Handle, Errno> {
        if self.handles.len() >= MAX_HANDLES {
            return Err(Errno::MFILE);
        }
        self.next += 1;
        self.handles.insert(self.next, opened);
        Ok(self.next)
    }

    fn add_directory(&mut self, dir: Box<dyn DirHandle>) -> Result<Answer, Errno> {
        let stat = dir.stat()?;
        Ok(Answer::Opened(self.add(Opened::Directory(dir))?, stat))
    }

    fn add_file(&mut self, file: Box<dyn FileHandle>) -> Result<Answer, Errno> {
        let stat = file.opened_stat()?;
        Ok(Answer::Opened(self.add(Opened::File(file))?, stat))
    }

    fn file(&self, handle: Handle) -> Result<&dyn FileHandle, Errno> {
        match self.handles.get(&handle) {
            Some(Opened::File(file)) => Ok(&**file),
            Some(Opened::Directory(_) | Opened::Listing(_)) | None => Err(Errno::BADF),
        }
    }

    fn directory(&self, handle: Handle) -> Result<&dyn DirHandle, Errno> {
        match self.handles.get(&handle) {
            Some(Opened::Directory(dir)) => Ok(&**dir),
            Some(Opened::File(_) | Opened::Listing(_)) | None => Err(Errno::BADF),
        }
    }

    fn in_directory(
        &mut self,
        handle: Handle,
        operation: DirectoryOperation,
    ) -> Result<Answer, Errno> {
        let dir = self.directory(handle)?;
        match operation {
            DirectoryOperation::Attributes(operation) => attributes(dir, operation),
            DirectoryOperation::Clone => {
                let again = dir.try_clone()?;
                self.add_directory(again)
            }
            DirectoryOperation::List => {
                let listing = list(dir)?;
                self.add(Opened::Listing(listing)).map(Answer::Number)
            }
            DirectoryOperation::OpenDir(name) => {
                let inner = dir.open_dir(component(&name)?)?;
                self.add_directory(inner)
            }
            DirectoryOperation::Open(name) => {
                let file = dir.open(component(&name)?, None)?;
                self.add_file(file)
            }
            DirectoryOperation::Create(name, keep) => {
                let file = dir.create(component(&name)?, keep)?;
                self.add_file(file)
            }
            DirectoryOperation::Link { name, directory, existing } => {
                let mut directories = self.handles.values().filter_map(|opened| match opened {
                    Opened::Directory(dir) => Some(dir),
                    Opened::File(_) | Opened::Listing(_) => None,
                });
                let from = directories.find(|dir| dir.stat().is_ok_and(|s| s.inode == directory));
                let from = from.ok_or(Errno::BADF)?;
                dir.link(component(&name)?, &**from, component(&existing)?)?;
                Ok(Answer::Done)
            }
            DirectoryOperation::Lstat(name) => dir.lstat(component(&name)?).map(Answer::Stat),
            DirectoryOperation::Mkdir(name) => dir.mkdir(component(&name)?).map(Answer::Flag),
            DirectoryOperation::Readlink(name, seen) => {
                let target = dir.readlink(component(&name)?, &seen)?;
                Ok(Answer::Bytes(target.as_bytes().to_vec()))
            }
            DirectoryOperation::Symlink(name, target, stat) => {
                let target = OsStr::from_bytes(&target);
                dir.symlink(component(&name)?, target, &stat).map(|()| Answer::Done)
            }
            DirectoryOperation::Unlink(name) => {
                dir.unlink(component(&name)?).map(|()| Answer::Done)
            }
            DirectoryOperation::Rmdir(name) => dir.rmdir(component(&name)?).map(|()| Answer::Done),
            DirectoryOperation::Rename(from, to) => {
                dir.rename(component(&from)?, component(&to)?).map(|()| Answer::Done)
            }
            DirectoryOperation::Sync => dir.syncfs().map(|()| Answer::Done),
            DirectoryOperation::Device => dir.device().map(Answer::Number),
        }
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

fn list(dir: &dyn DirHandle) -> Result<VecDeque<WireEntry>, Errno> {
    let mut entries = VecDeque::new();
    dir.read_dir(&mut |name, stat| {
        let stat = stat.map_err(Errno::raw_os_error);
        entries.push_back((name.as_bytes().to_vec(), stat));
        entries.len() <= MAX_LISTING
    })?;
    if entries.len() > MAX_LISTING { Err(Errno::NOMEM) } else { Ok(entries) }
}

fn in_file(
    file: &dyn FileHandle,
    operation: FileOperation,
    payload: &[u8],
) -> Result<Answer, Errno> {
    match operation {
        FileOperation::Attributes(operation) => attributes(file, operation),
        // The caller reads into the answer's payload.
        FileOperation::Read(..) => Err(Errno::INVAL),
        FileOperation::Write(offset) => file.write_all_at(payload, offset).map(|()| Answer::Done),
        FileOperation::Seek(offset, hole) => file.seek(offset, hole).map(Answer::Number),
        FileOperation::Truncate(size) => file.truncate(size).map(|()| Answer::Done),
        FileOperation::Sync => file.fdatasync().map(|()| Answer::Done),
    }
}

fn attributes<M: Metadata + ?Sized>(
    of: &M,
    operation: AttributeOperation,
) -> Result<Answer, Errno> {
    match operation {
        AttributeOperation::Stat => of.stat().map(Answer::Stat),
        AttributeOperation::SetMetadata(stat) => {
            of.set_metadata(&stat, &mut |mode| mode).map(|()| Answer::Done)
        }
        AttributeOperation::ListXattr => of.list_xattr().map(Answer::Names),
        AttributeOperation::GetXattr(name) => of.get_xattr(&name).map(Answer::Bytes),
        AttributeOperation::SetXattr(name, value) => {
            of.set_xattr(&name, &value).map(|()| Answer::Done)
        }
    }
}
