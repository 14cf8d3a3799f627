//! The thread that syncs, so that the event loop need not wait for the disk.

use super::counters::StoreCounters;
use super::mailbox::{Completion, Mailbox};
use crate::node::ConnId;
use crate::objects::{DiskObjects, ObjectId};
use crate::storage::{DiskStorage, Storage};
use forebay_protocol::{Errno, Reply};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Something to make durable.
#[derive(Debug)]
pub struct SyncJob {
    /// Whom to answer.
    pub caller: Option<(ConnId, u64)>,
    /// An object to sync first: which, without its times, and with its existence.
    pub object: Option<(ObjectId, bool, bool)>,
    /// So many of the objects that were put since the start are to be durable first.
    pub contents: u64,
    /// The log's current segment, and its last flushed record.
    pub segment: String,
    pub sequence: u64,
}

/// Jobs that may wait; more than there are connections.
const QUEUE: usize = 8192;

/// Start the thread that syncs. It ends when the sender is dropped.
pub fn start_syncer(
    counters: Arc<StoreCounters>,
    objects: DiskObjects,
    storage: DiskStorage,
    wake: Arc<Mailbox>,
) -> io::Result<(SyncSender<SyncJob>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new()
        .name("forebay-sync".into())
        .spawn(move || run_syncer(&jobs, &objects, &storage, &wake, &counters))?;
    Ok((sender, thread))
}

/// All jobs that wait are served by one sync of the log, or by none if that is durable already.
fn run_syncer(
    jobs: &Receiver<SyncJob>,
    objects: &DiskObjects,
    storage: &DiskStorage,
    wake: &Mailbox,
    counters: &StoreCounters,
) {
    let mut durable = 0;
    // The last record that is known to be durable.
    let mut logged = 0;
    // Whose contents were lost when that failed nobody knows: no later sync may say all is well.
    let mut contents = Ok(());
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        batch.extend(jobs.try_iter().take(QUEUE));
        let wanted = batch.iter().map(|job| job.contents).max().unwrap_or(0);
        if wanted > durable && contents.is_ok() {
            contents = objects.sync_all();
            durable = wanted;
            if let Err(error) = &contents {
                tracing::error!(%error, "contents of files cannot be made durable: syncs fail from \
                    now on, until the daemon is started anew");
            }
        }
        let mut results: Vec<Result<(), Errno>> = batch
            .iter()
            .map(|job| match job.object {
                Some((id, data_only, fresh)) => objects.sync_object(id, data_only, fresh),
                None if job.contents > 0 => contents,
                None => Ok(()),
            })
            .collect();
        let Some(last) = batch.iter().max_by_key(|job| job.sequence) else {
            continue;
        };
        let sequence = last.sequence;
        // Where nothing was written to the log since, syncing it would only flush the device again.
        let log = if sequence > logged {
            let begun = Instant::now();
            let log = storage.sync_file(&last.segment);
            counters.syncs.record_duration(begun.elapsed());
            match log {
                // It was closed, which made it durable, and a checkpoint has covered it since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                log => log,
            }
        } else {
            Ok(())
        };
        if log.is_ok() {
            logged = logged.max(sequence);
        }
        if let Err(error) = &log {
            tracing::error!(%error, "the log cannot be made durable");
            results.fill(Err(Errno::EIO));
        }
        let replies = batch.into_iter().zip(results).filter_map(|(job, result)| {
            let (conn, seq) = job.caller?;
            Some((
                conn,
                seq,
                result.map_or_else(Reply::Failed, |()| Reply::Done),
            ))
        });
        let replies = replies.collect();
        // After a failed sync nobody knows what is on the disk: the daemon has to stop.
        wake.post_completion(Completion {
            replies,
            sequence,
            failed: log.is_err(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::DataPath;
    use std::time::Duration;

    #[test]
    fn a_segment_that_a_checkpoint_has_covered_meanwhile_is_as_good_as_synced() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(&home.path().join("log")).unwrap();
        let wake = Arc::new(Mailbox::new().unwrap());
        let (jobs, thread) = start_syncer(
            Arc::new(StoreCounters::new(DataPath::default())),
            DiskObjects::open(&home.path().join("objects")).unwrap(),
            storage.clone(),
            wake.clone(),
        )
        .unwrap();
        for segment in ["log.1", "log.2"] {
            storage.create_file(segment, 4096).unwrap();
        }
        storage.remove_file("log.1").unwrap();
        for (segment, sequence) in [("log.1", 1), ("log.2", 2)] {
            let job = SyncJob {
                caller: None,
                object: None,
                contents: 0,
                segment: segment.to_owned(),
                sequence,
            };
            jobs.send(job).unwrap();
            let begun = Instant::now();
            let done = loop {
                if let Some(done) = wake.take_completions().pop() {
                    break done;
                }
                assert!(begun.elapsed() < Duration::from_secs(10));
                std::thread::yield_now();
            };
            assert_eq!((done.sequence, done.failed), (sequence, false), "{segment}");
        }
        drop(jobs);
        thread.join().unwrap();
    }
}
