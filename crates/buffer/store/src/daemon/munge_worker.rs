//! The thread that has `munged` verify clients' credentials and make the daemon's own. `munged` may
//! be slow, and the event loop must not wait for it.

use super::mailbox::{LoopEvent, Mailbox};
use super::worker::Worker;
use crate::node::ConnId;
use forebay_net::handshake::CredentialCheck;
use forebay_net::munge::Munge;
use std::io;
use std::sync::Arc;

/// A credential to verify.
#[derive(Debug)]
pub struct PendingCredential {
    pub conn: ConnId,
    pub check: CredentialCheck,
}

/// Credentials that may wait; further ones are refused.
const QUEUE_CAPACITY: usize = 1024;

/// Start the thread. It ends when the worker is dropped.
pub fn start_munge_worker(
    munge: Munge,
    mailbox: &Arc<Mailbox>,
) -> io::Result<Worker<PendingCredential>> {
    let results = mailbox.clone();
    let verify = move |pending: PendingCredential| {
        let outcome = pending.check.verify(&munge);
        results.post(LoopEvent::CredentialVerified { conn: pending.conn, outcome });
    };
    Worker::start_pool("forebay-munge", mailbox, QUEUE_CAPACITY, 1, verify)
}
