//! Threads that make data and log durable.
//!
//! The log has a thread of its own, so that names become durable however much data others sync. Objects
//! are synced by several threads, and files that were stored whole, all at once, by another. A call is
//! answered when first its data and then the log are durable.

use super::counters::StoreCounters;
use super::data::OpenObjects;
use super::mailbox::{LoopEvent, Mailbox};
use super::worker::Worker;
use crate::driver::ObjectSync;
use crate::node::ConnId;
use crate::objects::DiskObjects;
use crate::storage::{DiskStorage, Storage};
use crate::sync_failures::note_failed_sync;
use forebay_protocol::{Errno, Reply};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// Jobs that may wait in each queue; more than there are connections.
const QUEUE_CAPACITY: usize = 8192;
/// Objects that are synced at a time.
const OBJECT_THREADS: usize = 16;

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

/// Data that can be made durable.
pub trait SyncData: Send + Sync + 'static {
    /// Make an object durable.
    fn sync_object(&self, sync: &ObjectSync) -> Result<(), Errno>;
    /// Make the existence of an object durable.
    fn sync_folder(&self, sync: &ObjectSync) -> Result<(), Errno>;
    /// Make all objects durable.
    fn sync_all(&self) -> Result<(), Errno>;
}

/// Data objects, synced by the files of `opens`.
pub struct OpenedData {
    pub objects: DiskObjects,
    pub opens: Arc<OpenObjects>,
}

impl SyncData for OpenedData {
    /// Sync an object by the file of the handle through which it was written: the kernel reports a
    /// write error to each file that was open at the time, and to later ones only if nobody has
    /// been told.
    fn sync_object(&self, sync: &ObjectSync) -> Result<(), Errno> {
        let (session, handle) = sync.opened;
        let open = self.opens.get_handle(session, handle).ok();
        let open = open.filter(|open| open.object == sync.object);
        match &open {
            Some(open) => open.syncs.sync(sync.call, || match open.open_file(&self.objects)? {
                Some(file) => self.objects.sync_file(file, sync.data_only),
                None => Ok(()), // never had data, or was removed
            }),
            None => self.objects.sync_object(sync.object, sync.data_only),
        }
    }

    fn sync_folder(&self, sync: &ObjectSync) -> Result<(), Errno> {
        self.objects.sync_folder(sync.object)
    }

    fn sync_all(&self) -> Result<(), Errno> {
        self.objects.sync_all()
    }
}

/// A job whose data were synced.
type LogJob = (SyncJob, Result<(), Errno>);

/// The threads.
pub struct Syncer {
    log: Worker<LogJob>,
    objects: Worker<SyncJob>,
    puts: Worker<SyncJob>,
}

impl Syncer {
    /// Start the threads.
    pub fn start(
        counters: Arc<StoreCounters>,
        data: impl SyncData,
        storage: DiskStorage,
        mailbox: Arc<Mailbox>,
    ) -> io::Result<Syncer> {
        let data = Arc::new(data);
        let log_syncer =
            LogSyncer { counters, storage, mailbox: mailbox.clone(), durable_sequence: 0 };
        let log = Worker::start("forebay-synclog", &mailbox, QUEUE_CAPACITY, |jobs| {
            log_syncer.run(&jobs);
        })?;
        let (of_objects, of_puts) = (log.sender(), log.sender());
        let object_data = data.clone();
        let results = mailbox.clone();
        let sync_object = move |job: SyncJob| {
            let synced =
                job.object.map_or(Ok(()), |sync| sync_new_object(&*object_data, &sync, &results));
            let _ = of_objects.send((job, synced)); // fails only while the daemon stops
        };
        let objects = Worker::start_pool(
            "forebay-sync",
            &mailbox,
            QUEUE_CAPACITY,
            OBJECT_THREADS,
            sync_object,
        )?;
        let mut put_syncer = PutSyncer { data, durable_puts: 0, result: Ok(()) };
        let puts = Worker::start("forebay-syncall", &mailbox, QUEUE_CAPACITY, move |jobs| {
            put_syncer.run(&jobs, |job| drop(of_puts.send(job)));
        })?;
        Ok(Syncer { log, objects, puts })
    }

    /// Queue a job. Blocks while a queue is full.
    pub fn submit(&self, job: SyncJob) {
        if job.object.is_some() {
            self.objects.submit(job);
        } else if job.put_count > 0 {
            self.puts.submit(job);
        } else {
            self.log.submit((job, Ok(())));
        }
    }

    /// Carry out all jobs, and end the threads.
    pub fn shut_down(self) {
        self.objects.shut_down();
        self.puts.shut_down();
        self.log.shut_down();
    }
}

fn sync_new_object(
    data: &impl SyncData,
    sync: &ObjectSync,
    mailbox: &Mailbox,
) -> Result<(), Errno> {
    data.sync_object(sync)?;
    if sync.is_new {
        data.sync_folder(sync)?;
        mailbox.post(LoopEvent::ObjectDurable(sync.object));
    }
    Ok(())
}

/// Makes files that were stored whole durable.
struct PutSyncer<D> {
    data: Arc<D>,
    /// Number of objects put since the start that are durable.
    durable_puts: u64,
    /// A failed sync of all objects. The kernel does not report which data were lost, so no later
    /// sync may succeed.
    result: Result<(), Errno>,
}

impl<D: SyncData> PutSyncer<D> {
    /// One sync serves all waiting jobs.
    fn run(&mut self, jobs: &Receiver<SyncJob>, pass_on: impl Fn(LogJob)) {
        while let Ok(first) = jobs.recv() {
            let mut batch = vec![first];
            batch.extend(jobs.try_iter().take(QUEUE_CAPACITY));
            self.sync(batch.iter().map(|job| job.put_count).max().unwrap_or(0));
            for job in batch {
                pass_on((job, self.result));
            }
        }
    }

    fn sync(&mut self, wanted: u64) {
        if wanted <= self.durable_puts || self.result.is_err() {
            return;
        }
        self.result = self.data.sync_all();
        self.durable_puts = wanted;
        if let Err(error) = &self.result {
            tracing::error!(%error, "sync of file contents failed: all syncs fail until the daemon \
                is restarted");
        }
    }
}

/// Makes the log durable, and answers calls.
struct LogSyncer {
    counters: Arc<StoreCounters>,
    storage: DiskStorage,
    mailbox: Arc<Mailbox>,
    /// The last record known to be durable.
    durable_sequence: u64,
}

impl LogSyncer {
    /// One sync serves all waiting jobs.
    fn run(mut self, jobs: &Receiver<LogJob>) {
        while let Ok(first) = jobs.recv() {
            let mut batch = vec![first];
            batch.extend(jobs.try_iter().take(QUEUE_CAPACITY));
            let Some((last, _)) = batch.iter().max_by_key(|(job, _)| job.sequence) else {
                continue;
            };
            let sequence = last.sequence;
            if let Err(error) = self.sync_log(&last.segment, sequence) {
                tracing::error!(%error, "log sync failed");
                // The state of the medium is unknown: the daemon has to stop.
                self.mailbox.post(LoopEvent::LogFailed);
                continue;
            }
            // Before anybody learns it.
            if batch.iter().any(|(_, result)| result.is_err()) {
                note_failed_sync(&self.storage);
            }
            let replies = batch.into_iter().filter_map(|(job, result)| {
                let (conn, seq) = job.caller?;
                let reply = result.map_or_else(Reply::Failed, |()| Reply::Done);
                Some(LoopEvent::Reply { conn, seq, reply })
            });
            let synced = std::iter::once(LoopEvent::LogSynced(sequence));
            self.mailbox.post_all(synced.chain(replies));
        }
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
    use crate::objects::ObjectId;
    use forebay_protocol::{HandleId, Ino, InstanceId, SessionId};
    use parking_lot::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    /// Objects whose syncs end when the test says so.
    struct SlowData(Mutex<Receiver<()>>);

    impl SyncData for SlowData {
        fn sync_object(&self, _: &ObjectSync) -> Result<(), Errno> {
            self.0.lock().recv().map_err(|_| Errno::EIO)
        }

        fn sync_folder(&self, _: &ObjectSync) -> Result<(), Errno> {
            Ok(())
        }

        fn sync_all(&self) -> Result<(), Errno> {
            self.0.lock().recv().map_err(|_| Errno::EIO)
        }
    }

    struct Fixture {
        syncer: Syncer,
        storage: DiskStorage,
        mailbox: Arc<Mailbox>,
        release: Sender<()>,
        _home: tempfile::TempDir,
    }

    fn start() -> Fixture {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(&home.path().join("log")).unwrap();
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let (release, gate) = channel();
        let syncer = Syncer::start(
            Arc::new(StoreCounters::default()),
            SlowData(Mutex::new(gate)),
            storage.clone(),
            mailbox.clone(),
        );
        Fixture { syncer: syncer.unwrap(), storage, mailbox, release, _home: home }
    }

    fn log_job(segment: &str, sequence: u64) -> SyncJob {
        let segment = segment.to_owned();
        SyncJob { caller: None, object: None, put_count: 0, segment, sequence }
    }

    fn events(mailbox: &Mailbox) -> Vec<LoopEvent> {
        let begun = Instant::now();
        loop {
            let events = mailbox.take_events();
            if !events.is_empty() {
                return events;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "no event");
            std::thread::yield_now();
        }
    }

    fn is_synced(events: &[LoopEvent], sequence: u64) -> bool {
        matches!(events, [LoopEvent::LogSynced(upto)] if *upto == sequence)
    }

    #[test]
    fn segment_removed_by_checkpoint_counts_as_synced() {
        let fixture = start();
        for segment in ["log.1", "log.2"] {
            fixture.storage.create_file(segment, 4096).unwrap();
        }
        fixture.storage.remove_file("log.1").unwrap();
        for (segment, sequence) in [("log.1", 1), ("log.2", 2)] {
            fixture.syncer.submit(log_job(segment, sequence));
            let events = events(&fixture.mailbox);
            assert!(is_synced(&events, sequence), "{segment}: {events:?}");
        }
        fixture.syncer.shut_down();
    }

    #[test]
    fn log_is_synced_while_many_objects_are() {
        let fixture = start();
        fixture.storage.create_file("log.1", 4096).unwrap();
        let sync = |seq| {
            let object = ObjectId { instance: InstanceId(1), ino: Ino(seq) };
            let opened = (SessionId(1), HandleId(seq));
            let call = (0, seq);
            let sync = ObjectSync { object, opened, call, data_only: false, is_new: false };
            SyncJob { caller: Some((ConnId(1), seq)), object: Some(sync), ..log_job("log.1", 1) }
        };
        let count = 4 * OBJECT_THREADS as u64;
        (1..=count).for_each(|seq| fixture.syncer.submit(sync(seq)));
        let put = SyncJob { caller: Some((ConnId(2), 1)), put_count: 1, ..log_job("log.1", 1) };
        fixture.syncer.submit(put);
        for sequence in 2..5 {
            fixture.syncer.submit(log_job("log.1", sequence));
            let events = events(&fixture.mailbox);
            assert!(is_synced(&events, sequence), "{events:?}");
        }
        for _ in 0..=count {
            fixture.release.send(()).unwrap();
        }
        fixture.syncer.shut_down();
        let replies = fixture.mailbox.take_events();
        let done =
            |event: &&LoopEvent| matches!(event, LoopEvent::Reply { reply: Reply::Done, .. });
        assert_eq!(replies.iter().filter(done).count() as u64, count + 1);
    }
}
