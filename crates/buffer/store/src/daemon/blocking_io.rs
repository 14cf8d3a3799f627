//! Threads for operations that wait for the device: reading small objects that are not cached, and
//! invalidating checksums durably.

use super::mailbox::{LoopEvent, Mailbox};
use super::worker::Worker;
use crate::node::{ConnId, fetch_reply};
use crate::objects::{DiskObjects, FetchedObject, ObjectId};
use forebay_protocol::message::MAX_INLINE_FILE_BYTES;
use forebay_protocol::{Attr, Errno, InodeTag, Reply};
use std::io;
use std::sync::Arc;

/// Operations in flight: a device serves several in hardly more time than one.
const THREADS: usize = 8;
/// Operations that may be queued; further ones wait with the event loop, which must not block.
const QUEUE_CAPACITY: usize = 1024;

#[derive(Debug)]
pub enum BlockingJob {
    /// Read an object and answer the call.
    Fetch(FetchJob),
    /// Invalidate the checksums of an object.
    InvalidateChecksums(ObjectId),
}

/// An object to read and the call to answer.
#[derive(Debug)]
pub struct FetchJob {
    pub conn: ConnId,
    pub seq: u64,
    pub object: ObjectId,
    /// Attributes of the file, without those that the object contributes.
    pub attr: Attr,
    /// The file's length, if the object does not have it.
    pub length: Option<u64>,
    /// The tag of the file's inode, for a client that is not trusted.
    pub tag: Option<InodeTag>,
}

impl FetchJob {
    /// The reply with what was read of the object.
    pub fn reply(self, object: Result<Option<FetchedObject>, Errno>) -> Reply {
        let tags = self.tag.map(|tag| (self.attr.ino, tag)).into_iter().collect();
        fetch_reply(self.attr, self.length, object).with_tags(tags)
    }
}

/// Start the threads.
pub fn start_blocking_workers(
    objects: &DiskObjects,
    mailbox: &Arc<Mailbox>,
) -> io::Result<Worker<BlockingJob>> {
    let (objects, mailbox) = (objects.clone(), mailbox.clone());
    Worker::start_pool("forebay-fetch", &mailbox.clone(), QUEUE_CAPACITY, THREADS, move |job| {
        mailbox.post(carry_out(&objects, job));
    })
}

/// Carry out an operation. Blocks for the device.
fn carry_out(objects: &DiskObjects, job: BlockingJob) -> LoopEvent {
    match job {
        BlockingJob::Fetch(job) => {
            let object = objects.fetch_object(job.object, MAX_INLINE_FILE_BYTES, true);
            LoopEvent::Reply { conn: job.conn, seq: job.seq, reply: job.reply(object) }
        }
        BlockingJob::InvalidateChecksums(object) => {
            let result = objects.invalidate_checksums(object);
            LoopEvent::ChecksumsInvalidated(object, result)
        }
    }
}
