//! Requests of the kernel.

use crate::abi::{self, InHeader, ReadFlags, WriteFlags, opcode};
use crate::device::Device;
use crate::filesystem::Filesystem;
use crate::reply::Reply;
use crate::types::{CopyRange, FileHandle, INodeNo, LockOwner, NewMode, RequestId, SetAttr};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use zerocopy::FromBytes;

/// The process that made a request, and the request's number.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    id: RequestId,
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Request {
    /// The number of the request.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// The user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The thread; 0 if it is in a PID name space that this process does not see.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// The arguments of a request.
#[derive(Clone, Copy, Debug)]
struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    /// The next one, which has a fixed length.
    fn value<T: FromBytes>(&mut self) -> Option<T> {
        let (value, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(value)
    }

    /// The next one, a name that ends with a zero.
    fn name(&mut self) -> Option<&'a OsStr> {
        let length = self.0.iter().position(|byte| *byte == 0)?;
        let (name, rest) = self.0.split_at(length);
        self.0 = &rest[1..];
        Some(OsStr::from_bytes(name))
    }

    /// The next ones, data of this length.
    fn data(&mut self, length: u32) -> Option<&'a [u8]> {
        let (data, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(data)
    }
}

/// A request that has just been received.
#[derive(Debug)]
pub struct Incoming<'a> {
    header: InHeader,
    arguments: Arguments<'a>,
    device: &'a Arc<Device>,
}

/// A request with its arguments, which can be carried out by any thread. If it is dropped, it fails with
/// `EIO`.
#[derive(Debug)]
pub struct Held {
    header: InHeader,
    arguments: Vec<u8>,
    device: Arc<Device>,
    is_dispatched: bool,
}

impl Held {
    /// Carries the request out.
    pub fn dispatch<F: Filesystem>(mut self, fs: &F) {
        self.is_dispatched = true;
        let arguments = Arguments(&self.arguments);
        Incoming { header: self.header, arguments, device: &self.device }.dispatch(fs);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.is_dispatched && has_reply(self.header.opcode) {
            Reply::new(self.header.unique, self.device.clone()).error(libc::EIO);
        }
    }
}

/// Whether the kernel waits for a reply to requests of this kind.
fn has_reply(opcode: u32) -> bool {
    !matches!(
        opcode,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY
    )
}

impl<'a> Incoming<'a> {
    /// The request in `message`. `None`: it is too short to have a header, or shorter than that says.
    pub(crate) fn parse(message: &'a [u8], device: &'a Arc<Device>) -> Option<Incoming<'a>> {
        let (header, rest) = InHeader::read_from_prefix(message).ok()?;
        if header.len as usize != message.len() {
            return None;
        }
        // Extensions follow the arguments; none has been negotiated.
        let extensions = usize::from(header.total_extlen) * 8;
        let arguments = rest.get(..rest.len().checked_sub(extensions)?)?;
        Some(Incoming { header, arguments: Arguments(arguments), device })
    }

    pub(crate) fn header(&self) -> &InHeader {
        &self.header
    }

    /// The arguments as a structure.
    pub(crate) fn value<T: FromBytes>(&mut self) -> Option<T> {
        self.arguments.value()
    }

    /// Whether the kernel waits for a reply.
    pub(crate) fn has_reply(&self) -> bool {
        has_reply(self.header.opcode)
    }

    /// Copies the request, so that another thread can carry it out.
    pub fn hold(self) -> Held {
        Held {
            header: self.header,
            arguments: self.arguments.0.to_vec(),
            device: self.device.clone(),
            is_dispatched: false,
        }
    }

    /// The reply to the request, which is due once.
    pub(crate) fn reply(&self) -> Reply {
        Reply::new(self.header.unique, self.device.clone())
    }

    /// Carries the request out.
    pub fn dispatch<F: Filesystem>(mut self, fs: &F) {
        if self.carry_out(fs).is_none() {
            tracing::error!(opcode = self.header.opcode, "a request of the kernel is incomplete");
            if self.has_reply() {
                self.reply().error(libc::EIO);
            }
        }
    }

    /// `None`: an argument is missing, and there was no reply.
    fn carry_out<F: Filesystem>(&mut self, fs: &F) -> Option<()> {
        let InHeader { opcode, unique, uid, gid, pid, .. } = self.header;
        let request = &Request { id: RequestId(unique), uid, gid, pid };
        let ino = INodeNo(self.header.nodeid);
        let device = self.device;
        let reply = || Reply::new(unique, device.clone());
        let arguments = &mut self.arguments;
        match opcode {
            opcode::LOOKUP => fs.lookup(request, ino, arguments.name()?, reply().into()),
            opcode::FORGET => fs.forget(ino, arguments.value::<abi::ForgetIn>()?.nlookup),
            opcode::BATCH_FORGET => {
                let batch: abi::BatchForgetIn = arguments.value()?;
                for _ in 0..batch.count {
                    let one: abi::ForgetOne = arguments.value()?;
                    fs.forget(INodeNo(one.nodeid), one.nlookup);
                }
            }
            opcode::GETATTR => {
                let get: abi::GetattrIn = arguments.value()?;
                let has_handle = get.getattr_flags & abi::GETATTR_FH != 0;
                let handle = has_handle.then_some(FileHandle(get.fh));
                fs.getattr(request, ino, handle, reply().into());
            }
            opcode::SETATTR => {
                let set: abi::SetattrIn = arguments.value()?;
                fs.setattr(request, ino, &SetAttr::from(&set), reply().into());
            }
            opcode::READLINK => fs.readlink(request, ino, reply().into()),
            opcode::SYMLINK => {
                let (name, target) = (arguments.name()?, arguments.name()?);
                fs.symlink(request, ino, name, target, reply().into());
            }
            opcode::MKNOD => {
                let abi::MknodIn { mode, rdev, umask, .. } = arguments.value()?;
                let (name, mode) = (arguments.name()?, NewMode { mode, umask });
                fs.mknod(request, ino, name, mode, rdev, reply().into());
            }
            opcode::MKDIR => {
                let abi::MkdirIn { mode, umask } = arguments.value()?;
                let (name, mode) = (arguments.name()?, NewMode { mode, umask });
                fs.mkdir(request, ino, name, mode, reply().into());
            }
            opcode::UNLINK => fs.unlink(request, ino, arguments.name()?, reply().into()),
            opcode::RMDIR => fs.rmdir(request, ino, arguments.name()?, reply().into()),
            opcode::RENAME | opcode::RENAME2 => {
                let (to, flags) = if opcode == opcode::RENAME {
                    (arguments.value::<abi::RenameIn>()?.newdir, 0)
                } else {
                    let rename: abi::Rename2In = arguments.value()?;
                    (rename.newdir, rename.flags)
                };
                let (name, to_name) = (arguments.name()?, arguments.name()?);
                fs.rename(request, ino, name, INodeNo(to), to_name, flags, reply().into());
            }
            opcode::LINK => {
                let existing = INodeNo(arguments.value::<abi::LinkIn>()?.oldnodeid);
                fs.link(request, existing, ino, arguments.name()?, reply().into());
            }
            opcode::OPEN => {
                let flags = arguments.value::<abi::OpenIn>()?.flags as i32;
                fs.open(request, ino, flags, reply().into());
            }
            opcode::CREATE => {
                let abi::CreateIn { flags, mode, umask, .. } = arguments.value()?;
                let (name, mode) = (arguments.name()?, NewMode { mode, umask });
                fs.create(request, ino, name, mode, flags as i32, reply().into());
            }
            opcode::TMPFILE => {
                let abi::CreateIn { flags, mode, umask, .. } = arguments.value()?;
                fs.tmpfile(request, ino, NewMode { mode, umask }, flags as i32, reply().into());
            }
            opcode::READ => {
                let read: abi::ReadIn = arguments.value()?;
                let (handle, offset, size) = (FileHandle(read.fh), read.offset, read.size);
                let flags = ReadFlags::from_bits_retain(read.read_flags);
                let open_flags = read.flags as i32;
                fs.read(request, ino, handle, offset, size, flags, open_flags, reply().into());
            }
            opcode::WRITE => {
                let write: abi::WriteIn = arguments.value()?;
                let (handle, data) = (FileHandle(write.fh), arguments.data(write.size)?);
                let flags = WriteFlags::from_bits_retain(write.write_flags);
                let (offset, open_flags) = (write.offset, write.flags as i32);
                fs.write(request, ino, handle, offset, data, flags, open_flags, reply().into());
            }
            opcode::STATFS => fs.statfs(request, ino, reply().into()),
            opcode::RELEASE => {
                let handle = FileHandle(arguments.value::<abi::ReleaseIn>()?.fh);
                fs.release(request, ino, handle, reply().into());
            }
            opcode::RELEASEDIR => {
                let handle = FileHandle(arguments.value::<abi::ReleaseIn>()?.fh);
                fs.releasedir(request, ino, handle, reply().into());
            }
            opcode::FSYNC | opcode::FSYNCDIR => {
                let sync: abi::FsyncIn = arguments.value()?;
                let data_only = sync.fsync_flags & abi::FSYNC_FDATASYNC != 0;
                if opcode == opcode::FSYNC {
                    fs.fsync(request, ino, FileHandle(sync.fh), data_only, reply().into());
                } else {
                    fs.fsyncdir(request, ino, FileHandle(sync.fh), data_only, reply().into());
                }
            }
            opcode::SETXATTR => {
                let set: abi::SetxattrIn = arguments.value()?;
                let (name, value) = (arguments.name()?, arguments.data(set.size)?);
                fs.setxattr(request, ino, name, value, set.flags as i32, reply().into());
            }
            opcode::GETXATTR => {
                let size = arguments.value::<abi::GetxattrIn>()?.size;
                fs.getxattr(request, ino, arguments.name()?, size, reply().into());
            }
            opcode::LISTXATTR => {
                let size = arguments.value::<abi::GetxattrIn>()?.size;
                fs.listxattr(request, ino, size, reply().into());
            }
            opcode::REMOVEXATTR => fs.removexattr(request, ino, arguments.name()?, reply().into()),
            opcode::FLUSH => {
                let abi::FlushIn { fh, lock_owner, .. } = arguments.value()?;
                fs.flush(request, ino, FileHandle(fh), LockOwner(lock_owner), reply().into());
            }
            opcode::OPENDIR => fs.opendir(request, ino, reply().into()),
            opcode::READDIR => {
                let abi::ReadIn { fh, offset, size, .. } = arguments.value()?;
                fs.readdir(request, ino, FileHandle(fh), offset, reply().listing(size));
            }
            opcode::READDIRPLUS => {
                let abi::ReadIn { fh, offset, size, .. } = arguments.value()?;
                fs.readdirplus(request, ino, FileHandle(fh), offset, reply().listing_plus(size));
            }
            opcode::GETLK => {
                let lock: abi::LkIn = arguments.value()?;
                fs.getlk(request, ino, &(&lock).into(), reply().into());
            }
            opcode::SETLK | opcode::SETLKW => {
                let lock: abi::LkIn = arguments.value()?;
                let wait = opcode == opcode::SETLKW;
                fs.setlk(request, ino, &(&lock).into(), wait, reply().into());
            }
            opcode::ACCESS => {
                let mask = arguments.value::<abi::AccessIn>()?.mask;
                fs.access(request, ino, mask, reply().into());
            }
            opcode::INTERRUPT => {
                fs.interrupt(RequestId(arguments.value::<abi::InterruptIn>()?.unique));
            }
            // For other errors the kernel of old asks programs in vain.
            opcode::IOCTL => reply().error(libc::ENOTTY),
            opcode::FALLOCATE => {
                let abi::FallocateIn { fh, offset, length, mode, .. } = arguments.value()?;
                let (handle, mode) = (FileHandle(fh), mode as i32);
                fs.fallocate(request, ino, handle, offset, length, mode, reply().into());
            }
            opcode::LSEEK => {
                let abi::LseekIn { fh, offset, whence, .. } = arguments.value()?;
                let (offset, whence) = (offset as i64, whence as i32);
                fs.lseek(request, ino, FileHandle(fh), offset, whence, reply().into());
            }
            opcode::COPY_FILE_RANGE => {
                let copy: abi::CopyFileRangeIn = arguments.value()?;
                let range = CopyRange {
                    from: (FileHandle(copy.fh_in), copy.off_in),
                    to: (FileHandle(copy.fh_out), copy.off_out),
                    length: copy.length,
                };
                fs.copy_file_range(request, &range, reply().into());
            }
            _ if self.has_reply() => self.reply().error(libc::ENOSYS),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
