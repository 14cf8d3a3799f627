//! The thread that has `munged` verify clients' credentials and make the daemon's own. `munged` may
//! be slow, and the event loop must not wait for it.

use super::mailbox::{LoopEvent, Mailbox};
use crate::node::ConnId;
use forebay_net::handshake::CredentialCheck;
use forebay_net::munge::Munge;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// A credential to verify.
#[derive(Debug)]
pub struct PendingCredential {
    pub conn: ConnId,
    pub check: CredentialCheck,
}

/// Credentials that may wait; further ones are refused.
const QUEUE_CAPACITY: usize = 1024;

/// Start the thread. It ends when the sender is dropped.
pub fn start_munge_worker(
    munge: Munge,
    mailbox: Arc<Mailbox>,
) -> io::Result<SyncSender<PendingCredential>> {
    let (sender, inbox) = sync_channel::<PendingCredential>(QUEUE_CAPACITY);
    std::thread::Builder::new().name("forebay-munge".into()).spawn(move || {
        for pending in inbox {
            mailbox.post(LoopEvent::CredentialVerified {
                conn: pending.conn,
                outcome: pending.check.verify(&munge),
            });
        }
    })?;
    Ok(sender)
}
