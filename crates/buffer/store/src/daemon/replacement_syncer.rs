//! Threads that make files durable that are to replace others. They are apart from those for reads:
//! making a large file durable may take minutes.

use super::mailbox::{LoopEvent, Mailbox};
use super::worker::Worker;
use crate::objects::ObjectId;
use forebay_protocol::Errno;
use std::io;
use std::sync::Arc;

/// Files that are made durable at a time.
const THREADS: usize = 8;
/// Files that may wait; more than there are connections, each of which has one call.
const QUEUE_CAPACITY: usize = 8192;

/// The threads and their queue.
#[derive(Debug)]
pub struct ReplacementSyncer {
    worker: Worker<ObjectId>,
    mailbox: Arc<Mailbox>,
}

impl ReplacementSyncer {
    /// Start the threads. `sync` makes an object and its existence durable.
    pub fn start(
        mailbox: Arc<Mailbox>,
        sync: impl Fn(ObjectId) -> Result<(), Errno> + Clone + Send + 'static,
    ) -> io::Result<ReplacementSyncer> {
        let results = mailbox.clone();
        let sync = move |object| results.post(LoopEvent::ObjectSynced(object, sync(object)));
        let worker =
            Worker::start_pool("forebay-replace", &mailbox, QUEUE_CAPACITY, THREADS, sync)?;
        Ok(ReplacementSyncer { worker, mailbox })
    }

    /// Queue an object. If the queue is full, its sync fails with `EAGAIN`, and clients repeat their
    /// calls. Never blocks.
    pub fn submit(&self, object: ObjectId) {
        if self.worker.try_submit(object).is_err() {
            self.mailbox.post(LoopEvent::ObjectSynced(object, Err(Errno::EAGAIN)));
        }
    }

    /// Carry out all jobs, and end the threads.
    pub fn shut_down(self) {
        self.worker.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::{Ino, InstanceId};
    use parking_lot::Mutex;
    use std::sync::mpsc::channel;

    fn synced(mailbox: &Mailbox) -> (usize, usize) {
        let (mut done, mut refused) = (0, 0);
        for event in mailbox.take_events() {
            match event {
                LoopEvent::ObjectSynced(_, Ok(())) => done += 1,
                LoopEvent::ObjectSynced(_, Err(Errno::EAGAIN)) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        (done, refused)
    }

    #[test]
    fn a_device_that_hangs_does_not_block_the_event_loop() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let (release, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let syncer = ReplacementSyncer::start(mailbox.clone(), move |_| {
            let _ = gate.lock().recv(); // returns when the sender is dropped
            Ok(())
        })
        .unwrap();
        let object = ObjectId { instance: InstanceId(1), ino: Ino::ROOT };
        let submitted = QUEUE_CAPACITY + THREADS + 1;
        (0..submitted).for_each(|_| syncer.submit(object));
        let (done, refused) = synced(&mailbox);
        assert_eq!(done, 0);
        assert!((1..=THREADS + 1).contains(&refused), "{refused}");
        drop(release);
        syncer.shut_down();
        assert_eq!(synced(&mailbox), (submitted - refused, 0));
    }
}
