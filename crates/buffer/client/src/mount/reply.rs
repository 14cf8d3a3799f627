//! Replies to the kernel.

use super::convert;
use super::kernel_cache::{KernelCache, Versions};
use forebay_fuse::{ReplyAttr, ReplyEmpty, ReplyEntry, ReplyWrite, ReplyXattr};
use forebay_protocol::{Attr, Errno};
use std::time::Duration;

/// An entry and its time to live.
pub fn entry(
    (cache, versions): (&KernelCache, Versions),
    reply: ReplyEntry,
    result: Result<(Attr, Duration), Errno>,
) {
    match result {
        Ok((attr, ttl)) => {
            let permit = cache.permit(ttl, versions);
            reply.entry(permit.ttl_of(attr.ino), &convert::attr(&attr));
        }
        Err(error) => reply.error(error.0),
    }
}

/// Attributes and their time to live.
pub fn attributes(
    (cache, versions): (&KernelCache, Versions),
    reply: ReplyAttr,
    result: Result<(Attr, Duration), Errno>,
) {
    match result {
        Ok((attr, ttl)) => {
            let permit = cache.permit(ttl, versions);
            reply.attr(permit.ttl_of(attr.ino), &convert::attr(&attr));
        }
        Err(error) => reply.error(error.0),
    }
}

/// A number of bytes.
pub fn written(reply: ReplyWrite, result: Result<u32, Errno>) {
    match result {
        Ok(count) => reply.written(count),
        Err(error) => reply.error(error.0),
    }
}

pub fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.0),
    }
}

/// A value for a buffer of `size` bytes; only its length if `size` is 0.
pub fn xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(libc::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error.0),
    }
}
