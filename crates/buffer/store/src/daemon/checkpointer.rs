//! The thread that keeps the log in order: checkpoints free what they cover, and what a full disk
//! needs to be emptied again is there beforehand.

use super::events::EventLoop;
use crate::log::spare_segment::spare_segment_bytes;
use crate::log::{LogSpace, RecoveryError};
use crate::recovery;
use crate::storage::DiskStorage;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a segment in reserve is tried to be had again, which costs little.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a checkpoint that failed is, which costs as much as one that does not: at first, and at
/// most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Start the thread, which is told where the log's segments begin. It ends when the sender is
/// dropped.
pub fn start_checkpointer(
    storage: DiskStorage,
    segment_size: u64,
) -> io::Result<(SyncSender<u64>, JoinHandle<()>)> {
    let (sender, starts) = sync_channel(1);
    let keeper = Keeper {
        storage,
        segment_size,
        start: 0,
        failed: None,
        pause: PAUSE.0,
        lacks: false,
    };
    let thread = std::thread::Builder::new()
        .name("forebay-checkpoint".into())
        .spawn(move || keeper.run(&starts))?;
    Ok((sender, thread))
}

struct Keeper {
    storage: DiskStorage,
    segment_size: u64,
    /// First record of the segment that is being written.
    start: u64,
    /// When the last checkpoint failed, if it did, and when it is tried again.
    failed: Option<Instant>,
    pause: Duration,
    /// Something is not in reserve.
    lacks: bool,
}

impl Keeper {
    fn run(mut self, starts: &Receiver<u64>) {
        loop {
            let told = match self.lacks || self.failed.is_some() {
                true => starts.recv_timeout(AGAIN),
                false => starts.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let due = match told {
                Ok(start) => {
                    self.start = start;
                    true
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.failed.is_some_and(|at| at.elapsed() >= self.pause)
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // It frees segments, which gives room for one in reserve.
            if due {
                self.checkpoint();
            }
            self.keep_spares();
        }
    }

    fn checkpoint(&mut self) {
        match recovery::write_checkpoint(&self.storage, self.start) {
            Ok(_) => (self.failed, self.pause) = (None, PAUSE.0),
            Err(error) => {
                self.pause = match self.failed {
                    Some(_) => (self.pause * 2).min(PAUSE.1),
                    None => PAUSE.0,
                };
                self.failed = Some(Instant::now());
                match error {
                    RecoveryError::Io(error) => tracing::warn!(%error, again = ?self.pause,
                        "no checkpoint can be made now; the log grows"),
                    error => tracing::error!(%error, "no checkpoint can be made; the log grows"),
                }
            }
        }
    }

    fn keep_spares(&mut self) {
        match recovery::ensure_spares(&self.storage, self.segment_size) {
            Ok(()) => self.lacks = false,
            Err(error) => {
                if !std::mem::replace(&mut self.lacks, true) {
                    tracing::warn!(%error, "the log cannot have space in reserve now");
                }
            }
        }
    }
}

impl EventLoop {
    /// Have room in the log for what comes next, and the keeper know of new segments.
    pub(super) fn ensure_log_space(&mut self) -> io::Result<()> {
        let room = self.parts.log.ensure_headroom()?;
        self.note_room(room);
        let start = self.parts.log.segment_start_sequence();
        if start > self.checkpointed
            && let Some((sender, _)) = &self.keeper
            && sender.try_send(start).is_ok()
        {
            self.checkpointed = start;
        }
        Ok(())
    }

    fn note_room(&mut self, room: LogSpace) {
        let before = self.parts.node.set_log_space(room);
        if before == room {
            return;
        }
        let spare = spare_segment_bytes(self.segment_size);
        match room {
            LogSpace::Normal => tracing::info!("the log has room again: all changes are taken"),
            LogSpace::ReserveOnly => tracing::warn!(
                needed = spare,
                "the disk of the log is full: what does not give space back is refused, until it \
                 has so many bytes free"
            ),
            LogSpace::Exhausted => tracing::warn!(
                needed = spare,
                "the log has no room at all: all changes are refused until its disk has so many \
                 bytes free"
            ),
        }
    }
}
