//! Threads that take jobs from a bounded queue.

use parking_lot::Mutex;
use std::collections::VecDeque;
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

/// A worker for a thread that must not block. Jobs for which the queue has no room wait, in order,
/// until [`submit_waiting`](OverflowWorker::submit_waiting) is called.
#[derive(Debug)]
pub struct OverflowWorker<T> {
    worker: Worker<T>,
    /// Jobs that wait for room in the queue: at most one for each open connection, and those of connections
    /// that were closed meanwhile.
    waiting: VecDeque<T>,
}

impl<T: Send + 'static> OverflowWorker<T> {
    pub fn new(worker: Worker<T>) -> OverflowWorker<T> {
        OverflowWorker { worker, waiting: VecDeque::new() }
    }

    /// Queue a job behind those that wait.
    pub fn submit(&mut self, job: T) {
        self.waiting.push_back(job);
        self.submit_waiting();
    }

    /// Queue waiting jobs while there is room. To be called when a job was carried out.
    pub fn submit_waiting(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            if let Err(job) = self.worker.try_submit(job) {
                self.waiting.push_front(job);
                return;
            }
        }
    }

    /// Drop the jobs that wait, and end the threads when they have carried out the queued ones.
    pub fn shut_down(self) {
        self.worker.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_beyond_the_queue_are_carried_out_in_order_and_never_by_the_submitter() {
        const JOBS: usize = 50;
        let (gate, passes) = channel::<()>();
        let (done, results) = channel();
        let passes = Arc::new(Mutex::new(passes));
        let worker = Worker::start_pool("gated", 4, 1, move |job: usize| {
            let _ = passes.lock().recv();
            let _ = done.send((job, std::thread::current().id()));
        })
        .unwrap();
        let mut worker = OverflowWorker::new(worker);
        for job in 0..JOBS {
            worker.submit(job); // Nothing passes the gate: this thread would wait for ever.
        }
        assert!(worker.waiting.len() >= JOBS - 5, "the queue and the thread have room for 5");
        for expected in 0..JOBS {
            gate.send(()).unwrap();
            let (job, thread) = results.recv().unwrap();
            assert_eq!(job, expected);
            assert_ne!(thread, std::thread::current().id());
            worker.submit_waiting();
        }
        assert!(worker.waiting.is_empty());
        worker.shut_down();
    }
}
