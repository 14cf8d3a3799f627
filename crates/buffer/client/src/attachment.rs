//! The state that the clones of an attached file system share with their open files.

use crate::close_batch::CloseBatch;
use crate::file::{ReadAheadMemory, ReadFiles};
use crate::reservations::Reservations;
use crate::sessions::Sessions;
use std::sync::Arc;

/// The sessions of a client with an instance, and what belongs to them.
#[derive(Debug)]
pub struct Attachment {
    /// Sends close requests in the background. Dropped before the sessions.
    pub close_batch: Option<Arc<CloseBatch>>,
    pub reservations: Reservations,
    /// Memory for data read ahead; none if all nodes are on this host.
    pub read_ahead_memory: ReadAheadMemory,
    /// The open files that may read ahead.
    pub read_files: ReadFiles,
    pub sessions: Arc<Sessions>,
}

impl Attachment {
    /// Without a close batch, each close is one request.
    pub fn new(sessions: Sessions, batch_closes: bool) -> Attachment {
        let sessions = Arc::new(sessions);
        let is_remote = sessions.any_remote();
        let read_ahead_bytes = if is_remote { sessions.options().read_ahead_bytes } else { 0 };
        let close_batch = batch_closes.then(|| CloseBatch::start(&sessions)).flatten();
        let close_batch = close_batch.map(Arc::new);
        Attachment {
            read_ahead_memory: ReadAheadMemory::new(read_ahead_bytes),
            read_files: ReadFiles::default(),
            reservations: Reservations::new(sessions.clone(), close_batch.clone()),
            close_batch,
            sessions,
        }
    }
}
