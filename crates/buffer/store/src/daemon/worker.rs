//! Threads that take jobs from a bounded queue.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// One or more threads and the sender of their queue.
#[derive(Debug)]
pub struct Worker<T> {
    sender: SyncSender<T>,
    threads: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Start a thread that runs `run` on a queue of at most `capacity` jobs. `run` must return when
    /// the queue is disconnected.
    pub fn start(
        name: &str,
        capacity: usize,
        run: impl FnOnce(Receiver<T>) + Send + 'static,
    ) -> io::Result<Worker<T>> {
        let (sender, jobs) = sync_channel(capacity);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(jobs))?;
        Ok(Worker { sender, threads: vec![thread] })
    }

    /// Start `count` threads that carry out jobs of one queue.
    pub fn start_pool(
        name: &str,
        capacity: usize,
        count: usize,
        carry_out: impl Fn(T) + Clone + Send + 'static,
    ) -> io::Result<Worker<T>> {
        assert!(count > 0, "a pool without threads");
        let (sender, jobs) = sync_channel(capacity);
        let jobs = Arc::new(Mutex::new(jobs));
        let start = |number| {
            let (jobs, carry_out) = (jobs.clone(), carry_out.clone());
            let next_job = move || jobs.lock().recv();
            std::thread::Builder::new().name(format!("{name}{number}")).spawn(move || {
                while let Ok(job) = next_job() {
                    carry_out(job);
                }
            })
        };
        let threads = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Worker { sender, threads })
    }

    /// A sender of the queue. The threads end when all are dropped.
    pub fn sender(&self) -> SyncSender<T> {
        self.sender.clone()
    }

    /// Queue a job; blocks while the queue is full. A job for a thread that has ended is dropped.
    pub fn submit(&self, job: T) {
        let _ = self.sender.send(job);
    }

    /// Queue a job, or return it if the queue is full.
    pub fn try_submit(&self, job: T) -> Result<(), T> {
        self.sender.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }

    /// Disconnect the queue and wait for the threads.
    pub fn shut_down(self) {
        drop(self.sender);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
