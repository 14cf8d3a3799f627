//! What the mount serves, and the shapes of its answers.

use super::cached_entries::CachedEntries;
use super::convert::{self, errno};
use super::lock_waits::LockWaits;
use super::negative_lookups::NegativeLookups;
use super::open_files::OpenFiles;
use crate::fs::{CallerProcess, Fs, GroupHints};
use forebay_protocol::Request as wire;
use forebay_protocol::message::NameRequest;
use forebay_protocol::message::NewInode;
use forebay_protocol::{Attr, Credentials, Errno, FileKind, Ino};
use fuser::{Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub struct MountedFs {
    pub(super) fs: Fs,
    /// We are root, and say on whose behalf we ask; the daemon checks what they may.
    pub(super) trusted: bool,
    mattered: Arc<GroupHints>,
    pub(super) cached_entries: CachedEntries,
    pub(super) negative_lookups: NegativeLookups,
    pub(super) passthrough: AtomicBool,
    /// A data object has been registered: too late to do without passthrough.
    registered: AtomicBool,
    pub(super) opens: OpenFiles,
    pub(super) lock_waits: LockWaits,
}

impl MountedFs {
    pub fn new(fs: Fs, passthrough: bool) -> MountedFs {
        MountedFs {
            fs,
            trusted: rustix::process::geteuid().is_root(),
            mattered: Arc::default(),
            cached_entries: CachedEntries::default(),
            negative_lookups: NegativeLookups::default(),
            passthrough: AtomicBool::new(passthrough),
            registered: AtomicBool::new(false),
            opens: OpenFiles::default(),
            lock_waits: LockWaits::default(),
        }
    }

    pub(super) fn passthrough(&self) -> bool {
        self.passthrough.load(Ordering::Acquire)
    }

    /// Registering a data object failed. `false`: others succeeded before.
    pub(super) fn disable_passthrough(&self) -> bool {
        self.passthrough.store(false, Ordering::Release);
        !self.registered.load(Ordering::Acquire)
    }

    pub(super) fn mark_registered(&self) {
        self.registered.store(true, Ordering::Release);
    }

    /// As one who may do anything, if we are.
    pub(super) fn fs_as_root(&self) -> Fs {
        if !self.trusted {
            return self.fs.clone();
        }
        self.fs.on_behalf_of(Credentials {
            uid: 0,
            gid: 0,
            groups: Some(Vec::new()),
            checked: true,
        })
    }

    pub(super) fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new: NewInode,
        mode: u32,
    ) -> Result<(Attr, Duration), Errno> {
        let (parent, name) = (convert::ino(parent), name.as_bytes().to_vec());
        let mode = (mode & 0o7777) as u16;
        self.negative_lookups.add_name(parent, &name);
        let make = wire::Name(NameRequest::Mknod {
            parent,
            name,
            new,
            mode,
        });
        let fs = self.fs_for(request);
        let made = self.track_name(parent, || fs.attr_for(parent.metadata_node(), make));
        // The kernel lets nobody look into its parent before it has the answer.
        if let Ok((attr, valid)) = &made
            && attr.kind == FileKind::Dir
            && attr.mode & 0o111 == 0o111
            && !valid.is_zero()
        {
            self.negative_lookups.add_directory(attr.ino);
        }
        made
    }

    /// Do what answers with a name in `dir`.
    pub(super) fn track_name<T>(
        &self,
        dir: Ino,
        ask: impl FnOnce() -> Result<(T, Duration), Errno>,
    ) -> Result<(T, Duration), Errno> {
        let asked = Instant::now();
        let ask = || {
            let answer = ask();
            if matches!(&answer, Ok((_, valid)) if !valid.is_zero()) {
                self.negative_lookups.confirm_alone(asked);
            }
            answer
        };
        if !self.trusted {
            return ask(); // there is only one user
        }
        let kept = |answer: &Result<(T, Duration), Errno>| {
            answer.as_ref().map_or(Duration::ZERO, |(_, valid)| *valid)
        };
        self.cached_entries.track_lookup(dir, ask, kept)
    }

    pub(super) fn fs_for(&self, request: &Request) -> Fs {
        if !self.trusted {
            return self.fs.clone();
        }
        let process = CallerProcess {
            pid: request.pid(),
            group_hints: self.mattered.clone(),
        };
        self.fs
            .on_behalf_of_process(request.uid(), request.gid(), process)
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
