//! Threads that take jobs from a bounded queue. A panic of one ends the daemon with an error: the calls of
//! lost jobs would otherwise wait for ever.

use super::mailbox::{LoopEvent, Mailbox};
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

/// Start a thread. The event loop is told if it panics.
pub fn start_thread(
    name: String,
    mailbox: &Arc<Mailbox>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let report = PanicReport { thread: name.clone(), mailbox: mailbox.clone() };
    std::thread::Builder::new().name(name).spawn(move || {
        let _report = report;
        run();
    })
}

/// Posts an event if it is dropped because its thread panics.
struct PanicReport {
    thread: String,
    mailbox: Arc<Mailbox>,
}

impl Drop for PanicReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.mailbox.post(LoopEvent::ThreadPanicked(std::mem::take(&mut self.thread)));
        }
    }
}

impl<T: Send + 'static> Worker<T> {
    /// Start a thread that runs `run` on a queue of at most `capacity` jobs. `run` must return when
    /// the queue is disconnected.
    pub fn start(
        name: &str,
        mailbox: &Arc<Mailbox>,
        capacity: usize,
        run: impl FnOnce(Receiver<T>) + Send + 'static,
    ) -> io::Result<Worker<T>> {
        let (sender, jobs) = sync_channel(capacity);
        let thread = start_thread(name.to_owned(), mailbox, move || run(jobs))?;
        Ok(Worker { sender, threads: vec![thread] })
    }

    /// Start `count` threads that carry out jobs of one queue.
    pub fn start_pool(
        name: &str,
        mailbox: &Arc<Mailbox>,
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
            start_thread(format!("{name}{number}"), mailbox, move || {
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

    /// Queue a job, or return it if the queue is full or all threads have ended.
    pub fn try_submit(&self, job: T) -> Result<(), TrySendError<T>> {
        self.sender.try_send(job)
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

    /// Queue waiting jobs while there is room. To be called when a job was carried out. If all threads
    /// have panicked, which ends the daemon, the jobs are dropped.
    pub fn submit_waiting(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            match self.worker.try_submit(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => {
                    self.waiting.push_front(job);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => self.waiting.clear(),
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
    use std::time::{Duration, Instant};

    #[test]
    fn jobs_beyond_the_queue_are_carried_out_in_order_and_never_by_the_submitter() {
        const JOBS: usize = 50;
        let (gate, passes) = channel::<()>();
        let (done, results) = channel();
        let passes = Arc::new(Mutex::new(passes));
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let worker = Worker::start_pool("gated", &mailbox, 4, 1, move |job: usize| {
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
        assert!(mailbox.take_events().is_empty());
    }

    #[test]
    fn panics_of_all_threads_are_reported_and_no_job_waits() {
        const THREADS: usize = 2;
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let pool = Worker::start_pool("pool", &mailbox, 1, THREADS, |job: u32| {
            assert!(job == 0, "job {job} is carried out");
        });
        let mut worker = OverflowWorker::new(pool.unwrap());
        (1..=10).for_each(|job| worker.submit(job));
        let begun = Instant::now();
        let mut panicked = Vec::new();
        while panicked.len() < THREADS {
            assert!(begun.elapsed() < Duration::from_secs(10), "only {panicked:?} are reported");
            worker.submit_waiting();
            for event in mailbox.take_events() {
                match event {
                    LoopEvent::ThreadPanicked(thread) => panicked.push(thread),
                    other => panic!("{other:?}"),
                }
            }
        }
        panicked.sort();
        assert_eq!(panicked, ["pool0", "pool1"]);
        while !worker.worker.threads.iter().all(JoinHandle::is_finished) {
            std::thread::yield_now();
        }
        worker.submit(11);
        assert!(worker.waiting.is_empty(), "jobs wait for threads that have ended");
        worker.shut_down();
    }
}
