//! The thread that syncs objects and the log.

use super::counters::StoreCounters;
use super::data::OpenObjects;
use super::mailbox::{LoopEvent, Mailbox};
use super::worker::Worker;
use crate::driver::ObjectSync;
use crate::node::ConnId;
use crate::objects::DiskObjects;
use crate::storage::{DiskStorage, Storage};
use forebay_protocol::{Errno, Reply};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// Jobs that may wait; more than there are connections.
const QUEUE_CAPACITY: usize = 8192;

/// A request for durability.
#[derive(Debug)]
pub struct SyncJob {
    /// The call to answer, by connection and sequence number.
    pub caller: Option<(ConnId, u64)>,
    /// An object to sync before the log.
    pub object: Option<ObjectSync>,
    /// This many of the objects put since the start must be durable before the log.
    pub put_count: u64,
    pub segment: String,
    /// The last flushed log record.
    pub sequence: u64,
}

/// Start the thread. Objects are synced by the files of `opens`.
pub fn start_syncer(
    counters: Arc<StoreCounters>,
    (objects, opens): (DiskObjects, Arc<OpenObjects>),
    storage: DiskStorage,
    mailbox: Arc<Mailbox>,
) -> io::Result<Worker<SyncJob>> {
    let syncer = Syncer {
        counters,
        objects,
        opens,
        storage,
        mailbox,
        durable_puts: 0,
        put_result: Ok(()),
        durable_sequence: 0,
    };
    Worker::start("forebay-sync", QUEUE_CAPACITY, |jobs| syncer.run(&jobs))
}

struct Syncer {
    counters: Arc<StoreCounters>,
    objects: DiskObjects,
    opens: Arc<OpenObjects>,
    storage: DiskStorage,
    mailbox: Arc<Mailbox>,
    /// Number of objects put since the start that are durable.
    durable_puts: u64,
    /// A failed sync of all objects. The kernel does not report which data were lost, so no later
    /// sync may succeed.
    put_result: Result<(), Errno>,
    /// The last record known to be durable.
    durable_sequence: u64,
}

impl Syncer {
    /// One sync of the log serves all waiting jobs.
    fn run(mut self, jobs: &Receiver<SyncJob>) {
        while let Ok(first) = jobs.recv() {
            let mut batch = vec![first];
            batch.extend(jobs.try_iter().take(QUEUE_CAPACITY));
            self.sync_puts(&batch);
            let results: Vec<_> = batch.iter().map(|job| self.sync_object(job)).collect();
            let Some(last) = batch.iter().max_by_key(|job| job.sequence) else {
                continue;
            };
            let sequence = last.sequence;
            if let Err(error) = self.sync_log(&last.segment, sequence) {
                tracing::error!(%error, "log sync failed");
                // The state of the medium is unknown: the daemon has to stop.
                self.mailbox.post(LoopEvent::LogFailed);
                continue;
            }
            assert_eq!(results.len(), batch.len());
            let replies = batch.into_iter().zip(results).filter_map(|(job, result)| {
                let (conn, seq) = job.caller?;
                let reply = result.map_or_else(Reply::Failed, |()| Reply::Done);
                Some(LoopEvent::Reply { conn, seq, reply })
            });
            let synced = std::iter::once(LoopEvent::LogSynced(sequence));
            self.mailbox.post_all(synced.chain(replies));
        }
    }

    fn sync_puts(&mut self, batch: &[SyncJob]) {
        let wanted = batch.iter().map(|job| job.put_count).max().unwrap_or(0);
        if wanted <= self.durable_puts || self.put_result.is_err() {
            return;
        }
        assert!(wanted > self.durable_puts);
        self.put_result = self.objects.sync_all();
        self.durable_puts = wanted;
        if let Err(error) = &self.put_result {
            tracing::error!(%error, "sync of file contents failed: all syncs fail until the daemon \
                is restarted");
        }
    }

    fn sync_object(&self, job: &SyncJob) -> Result<(), Errno> {
        match job.object {
            Some(sync) => self.sync_opened(&sync),
            None if job.put_count > 0 => self.put_result,
            None => Ok(()),
        }
    }

    /// Sync an object by the file of the handle through which it was written: the kernel reports a
    /// write error to each file that was open at the time, and to later ones only if nobody has
    /// been told.
    fn sync_opened(&self, sync: &ObjectSync) -> Result<(), Errno> {
        let (session, handle) = sync.opened;
        let open = self.opens.get_handle(session, handle).ok();
        let open = open.filter(|open| open.object == sync.object);
        let synced = match &open {
            Some(open) => match open.open_file(&self.objects)? {
                Some(file) => self.objects.sync_file(file, sync.data_only),
                None => return Ok(()), // never had data, or was removed
            },
            None => self.objects.sync_object(sync.object, sync.data_only),
        };
        synced?;
        if sync.is_new {
            self.objects.sync_folder(sync.object)?;
            self.mailbox.post(LoopEvent::ObjectDurable(sync.object));
        }
        Ok(())
    }

    fn sync_log(&mut self, segment: &str, sequence: u64) -> io::Result<()> {
        // Without new records, a sync would only flush the device's cache again.
        if sequence <= self.durable_sequence {
            return Ok(());
        }
        let begun = Instant::now();
        let synced = self.storage.sync_file(segment);
        self.counters.syncs.record_duration(begun.elapsed());
        match synced {
            // It was closed, which made it durable, and then removed by a checkpoint.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        self.durable_sequence = sequence;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn segment_removed_by_checkpoint_counts_as_synced() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(&home.path().join("log")).unwrap();
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let syncer = start_syncer(
            Arc::new(StoreCounters::default()),
            (DiskObjects::open(&home.path().join("objects")).unwrap(), Arc::default()),
            storage.clone(),
            mailbox.clone(),
        )
        .unwrap();
        for segment in ["log.1", "log.2"] {
            storage.create_file(segment, 4096).unwrap();
        }
        storage.remove_file("log.1").unwrap();
        for (segment, sequence) in [("log.1", 1), ("log.2", 2)] {
            syncer.submit(SyncJob {
                caller: None,
                object: None,
                put_count: 0,
                segment: segment.to_owned(),
                sequence,
            });
            let begun = Instant::now();
            let event = loop {
                if let Some(event) = mailbox.take_events().pop() {
                    break event;
                }
                assert!(begun.elapsed() < Duration::from_secs(10));
                std::thread::yield_now();
            };
            let synced = matches!(event, LoopEvent::LogSynced(upto) if upto == sequence);
            assert!(synced, "{segment}: {event:?}");
        }
        syncer.shut_down();
    }
}
