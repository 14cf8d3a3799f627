//! Threads that wait for the device so that the event loop need not: they read whole small objects,
//! and take checksums off durably.

use super::mailbox::{Completion, Mailbox};
use crate::node::{ConnId, fetch_reply};
use crate::objects::{DiskObjects, ObjectId};
use forebay_protocol::Attr;
use forebay_protocol::message::MAX_INLINE_FILE_BYTES;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Reads that are under way at a time: a device serves several in little more than one takes.
const THREADS: usize = 8;
/// Objects that may wait to be read; with more the event loop reads itself.
const QUEUE: usize = 1024;

/// Something to do.
#[derive(Debug)]
pub enum BlockingJob {
    /// Read an object.
    Read(FetchJob),
    /// Take the checksums off an object.
    Unseal(ObjectId),
}

/// An object to be read, and whom to answer.
#[derive(Debug)]
pub struct FetchJob {
    pub conn: ConnId,
    pub seq: u64,
    pub object: ObjectId,
    /// As [`Effect::Fetch`](crate::node::Effect::Fetch) has them.
    pub attr: Attr,
    pub length: Option<u64>,
}

/// Start the threads. They end when the sender is dropped.
pub fn start_blocking_workers(
    objects: &DiskObjects,
    wake: &Arc<Mailbox>,
) -> io::Result<(SyncSender<BlockingJob>, Vec<JoinHandle<()>>)> {
    let (sender, jobs) = sync_channel(QUEUE);
    let jobs = Arc::new(Mutex::new(jobs));
    let start = |number| {
        let (jobs, objects, wake) = (jobs.clone(), objects.clone(), wake.clone());
        std::thread::Builder::new()
            .name(format!("forebay-fetch{number}"))
            .spawn(move || run(&jobs, &objects, &wake))
    };
    let threads = (0..THREADS).map(start).collect::<io::Result<_>>()?;
    Ok((sender, threads))
}

fn run(jobs: &Mutex<Receiver<BlockingJob>>, objects: &DiskObjects, wake: &Mailbox) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = next else { return };
        let job = match job {
            BlockingJob::Read(read) => read,
            BlockingJob::Unseal(object) => {
                wake.post_invalidated(object, objects.invalidate_checksums(object));
                continue;
            }
        };
        let object = objects.fetch_object(job.object, MAX_INLINE_FILE_BYTES, true);
        let reply = fetch_reply(job.attr, job.length, object);
        wake.post_completion(Completion {
            replies: vec![(job.conn, job.seq, reply)],
            sequence: 0,
            failed: false,
        });
    }
}
