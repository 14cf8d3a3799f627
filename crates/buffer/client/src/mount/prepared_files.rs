//! Files without names that the storage node has made, opened and reserved space for ahead of need. A mount
//! that creates one file after the other has some: each create under a
//! [delegation](crate::sessions::Delegation) takes one, and has another one made.
//!
//! They are closed when none was needed for a while, and when the delegation is recalled; then the storage node
//! drops them.

use crate::close_batch::CloseBatch;
use crate::file::File;
use crate::fs::{Fs, Preparing};
use crate::sessions::NODE_0;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of files, together with those that are being made.
const MAX_FILES: usize = 8;
/// Time after which a file is not used any more. The session at the storage node, to which it belongs, does not
/// end meanwhile.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum time between two creates that are taken to be followed by another one.
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// Time for which none is requested after a refusal.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Maximum time for which a recall of the delegation waits until the files are closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct PreparedFile {
    file: Arc<File>,
    made_at: Instant,
    /// Epoch of the daemon before. One that has restarted may not have been told of the file's handle.
    epoch: u64,
}

#[derive(Debug, Default)]
struct State {
    /// In the order in which they were made.
    files: VecDeque<PreparedFile>,
    /// Files that are being made.
    preparing: usize,
    /// Number of recalls.
    recalls: u64,
    last_create: Option<Instant>,
    refused_at: Option<Instant>,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a first file, or the mount ends.
    changed: Condvar,
}

/// The prepared files of a mount, and the thread that closes those that are not used.
#[derive(Debug)]
pub struct PreparedFiles {
    shared: Arc<Shared>,
    closes: Weak<CloseBatch>,
    /// `None`: no file is prepared.
    thread: Option<JoinHandle<()>>,
}

/// A file that is being made.
#[derive(Debug)]
#[must_use = "its connections are lost unless the replies are received"]
pub struct NextFile {
    preparing: Preparing,
    recalls: u64,
}

impl PreparedFile {
    fn is_old(&self, now: Instant) -> bool {
        now - self.made_at >= MAX_AGE
    }
}

impl State {
    /// Whether another file is likely to be needed at `now`.
    fn needs_file(&self, now: Instant) -> bool {
        assert!(self.files.len() + self.preparing <= MAX_FILES);
        let is_recent = |then: Option<Instant>, time| then.is_some_and(|then| now - then < time);
        self.files.len() + self.preparing < MAX_FILES && !is_recent(self.refused_at, REFUSAL_TIME)
    }

    /// The files that are too old at `now`.
    fn take_old(&mut self, now: Instant) -> Vec<PreparedFile> {
        let count = self.files.iter().take_while(|file| file.is_old(now)).count();
        self.files.drain(..count).collect()
    }
}

impl PreparedFiles {
    /// `is_enabled`: the mount may report creates before they are carried out.
    pub fn new(fs: &Fs, is_enabled: bool) -> PreparedFiles {
        let shared = Arc::<Shared>::default();
        let start = || {
            let served = shared.clone();
            let thread = std::thread::Builder::new().name("forebay-prepared".into());
            thread.spawn(move || close_old(&served)).ok()
        };
        let thread = is_enabled.then(start).flatten();
        let closes = fs.requester.attachment.close_batch.as_ref();
        PreparedFiles { closes: closes.map(Arc::downgrade).unwrap_or_default(), shared, thread }
    }

    /// A file is about to be created. Whether others were created shortly before, so that more are likely.
    pub fn note_create(&self, now: Instant) -> bool {
        let last = self.shared.state.lock().last_create.replace(now);
        self.thread.is_some() && last.is_some_and(|last| now - last < MAX_INTERVAL)
    }

    /// A file, if there is one. Closes none.
    pub fn take(&self, fs: &Fs) -> Option<Arc<File>> {
        let epoch = fs.sessions().session(NODE_0).ok()?.epoch();
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        let is_usable = |file: &PreparedFile| !file.is_old(now) && file.epoch == epoch;
        let position = state.files.iter().position(is_usable)?;
        state.files.remove(position).map(|prepared| prepared.file)
    }

    /// Requests a file in the name of the user of this process, if one is needed, without waiting for it.
    pub fn begin_next(&self, fs: &Fs) -> Option<NextFile> {
        let recalls = {
            let mut state = self.shared.state.lock();
            if !state.needs_file(Instant::now()) {
                return None;
            }
            state.preparing += 1;
            state.recalls
        };
        let preparing = fs.begin_preparing();
        if preparing.is_none() {
            self.shared.state.lock().preparing -= 1;
        }
        preparing.map(|preparing| NextFile { preparing, recalls })
    }

    /// Waits for the file.
    pub fn finish_next(&self, fs: &Fs, next: NextFile) {
        let (made_at, epoch) = (Instant::now(), next.preparing.epoch);
        let made = fs.finish_preparing(next.preparing);
        let mut state = self.shared.state.lock();
        assert!(state.preparing > 0, "a file that is made was requested");
        state.preparing -= 1;
        match made {
            Ok(file) if state.recalls == next.recalls && !state.has_ended => {
                state.files.push_back(PreparedFile { file, made_at, epoch });
                if state.files.len() == 1 {
                    self.shared.changed.notify_one();
                }
            }
            Ok(file) => {
                drop(state);
                drop(file);
            }
            Err(errno) => {
                tracing::debug!(%errno, "the storage node prepares no files");
                state.refused_at = Some(made_at);
            }
        }
    }

    /// The delegation is recalled: another client may need what the files take.
    pub fn drop_all(&self) {
        let files = {
            let mut state = self.shared.state.lock();
            state.recalls += 1;
            std::mem::take(&mut state.files)
        };
        if files.is_empty() {
            return;
        }
        drop(files);
        if let Some(closes) = self.closes.upgrade() {
            closes.finish_within(CLOSE_TIMEOUT);
        }
    }
}

/// Closes files that are too old, until the mount ends.
fn close_old(shared: &Shared) {
    let mut state = shared.state.lock();
    while !state.has_ended {
        let Some(first) = state.files.front() else {
            shared.changed.wait(&mut state);
            continue;
        };
        let until = first.made_at + MAX_AGE;
        shared.changed.wait_until(&mut state, until);
        let old = state.take_old(Instant::now());
        MutexGuard::unlocked(&mut state, || drop(old));
    }
}

impl Drop for PreparedFiles {
    fn drop(&mut self) {
        let files = {
            let mut state = self.shared.state.lock();
            state.has_ended = true;
            std::mem::take(&mut state.files)
        };
        drop(files);
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
