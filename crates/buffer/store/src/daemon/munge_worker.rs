//! The thread that has `munged` decode clients' credentials and encode the daemon's own. `munged`
//! may be slow, and the event loop must not wait for it.

use super::mailbox::{LoopEvent, Mailbox};
use crate::node::{ConnId, MungeAuthentication};
use forebay_net::handshake::Opening;
use forebay_net::munge::Munge;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// A credential to decode.
#[derive(Debug)]
pub struct PendingCredential {
    pub conn: ConnId,
    /// Sequence number of the call that carries it.
    pub seq: u64,
    pub credential: Vec<u8>,
    /// The handshake that it must belong to.
    pub opening: Opening,
}

/// Credentials that may wait; further ones are refused.
const QUEUE_CAPACITY: usize = 1024;

/// Start the thread. It ends when the sender is dropped.
pub fn start_munge_worker(
    munge: Munge,
    mailbox: Arc<Mailbox>,
) -> io::Result<SyncSender<PendingCredential>> {
    let (sender, inbox) = sync_channel::<PendingCredential>(QUEUE_CAPACITY);
    std::thread::Builder::new()
        .name("forebay-munge".into())
        .spawn(move || {
            for pending in inbox {
                let outcome = authenticate(&munge, &pending);
                if let Err(reason) = &outcome {
                    tracing::warn!(reason, "MUNGE authentication failed");
                }
                mailbox.post(LoopEvent::CredentialDecoded {
                    conn: pending.conn,
                    seq: pending.seq,
                    outcome: outcome.ok(),
                });
            }
        })?;
    Ok(sender)
}

/// Decode the credential and create the daemon's own.
fn authenticate(munge: &Munge, pending: &PendingCredential) -> Result<MungeAuthentication, String> {
    let decoded = munge.decode(&pending.credential);
    let credential = decoded.map_err(|error| error.to_string())?;
    let opening = &pending.opening;
    let peer = opening.believe_munge(&credential).map_err(|_| {
        let origin = credential.origin;
        format!("credential from {origin} belongs to another connection")
    })?;
    let own = opening.answer_munge(munge, &peer);
    Ok(MungeAuthentication {
        credential,
        nonce: opening.client,
        own: own.map_err(|error| error.to_string())?,
    })
}
