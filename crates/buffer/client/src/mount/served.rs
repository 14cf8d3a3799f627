//! What the mount serves, and the shapes of its answers.

use super::convert::{self, errno};
use super::open_files::OpenFiles;
use crate::fs::Fs;
use forebay_wire::Request as wire;
use forebay_wire::message::New;
use forebay_wire::{Attr, Caller, Errno};
use fuser::{Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub struct MountedFs {
    pub(super) fs: Fs,
    /// We are root, and the kernel checks permissions for us.
    pub(super) trusted: bool,
    pub(super) passthrough: AtomicBool,
    /// A data object has been registered: too late to do without passthrough.
    registered: AtomicBool,
    pub(super) opens: OpenFiles,
}

impl MountedFs {
    pub fn new(fs: Fs, passthrough: bool) -> MountedFs {
        MountedFs {
            fs,
            trusted: rustix::process::geteuid().is_root(),
            passthrough: AtomicBool::new(passthrough),
            registered: AtomicBool::new(false),
            opens: OpenFiles::default(),
        }
    }

    pub(super) fn passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Acquire)
    }

    /// Registering a data object failed. `false`: others succeeded before.
    pub(super) fn give_up_passthrough(&self) -> bool {
        self.passthrough.store(false, Ordering::Release);
        !self.registered.load(Ordering::Acquire)
    }

    pub(super) fn registered(&self) {
        self.registered.store(true, Ordering::Release);
    }

    pub(super) fn on_behalf_of(&self, caller: Caller) -> Fs {
        if self.trusted {
            self.fs.on_behalf_of(caller)
        } else {
            self.fs.clone()
        }
    }

    pub(super) fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new: New,
        mode: u32,
    ) -> Result<(Attr, Duration), Errno> {
        let (parent, name) = (convert::ino(parent), name.as_bytes().to_vec());
        let mode = (mode & 0o7777) as u16;
        let make = wire::Make {
            parent,
            name,
            new,
            mode,
        };
        self.fs_for(request).attr_for(parent.shard(), make)
    }

    pub(super) fn fs_for(&self, request: &Request) -> Fs {
        self.on_behalf_of(Caller {
            uid: request.uid(),
            gid: request.gid(),
            checked: true,
        })
    }
}

pub fn entry(reply: ReplyEntry, result: Result<(Attr, Duration), Errno>) {
    match result {
        Ok((attr, valid)) => reply.entry(&valid, &convert::attr(&attr), Generation(0)),
        Err(error) => reply.error(errno(error)),
    }
}

pub fn attributes(reply: ReplyAttr, result: Result<(Attr, Duration), Errno>) {
    match result {
        Ok((attr, valid)) => reply.attr(&valid, &convert::attr(&attr)),
        Err(error) => reply.error(errno(error)),
    }
}

pub fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

pub fn xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(errno(error)),
    }
}
