//! The thread that asks `munged` about credentials, and for the daemon's own: nobody else waits for
//! it.

use super::mailbox::Mailbox;
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
    /// The call that has it.
    pub seq: u64,
    pub credential: Vec<u8>,
    /// What it must answer.
    pub opening: Opening,
}

/// Most credentials that wait; more are refused.
const WAITING: usize = 1024;

/// Starts the thread. It ends when the sender is dropped.
pub fn start_munge_worker(
    munge: Munge,
    wake: Arc<Mailbox>,
) -> io::Result<SyncSender<PendingCredential>> {
    let (sender, inbox) = sync_channel::<PendingCredential>(WAITING);
    std::thread::Builder::new()
        .name("forebay-munge".into())
        .spawn(move || {
            for unproven in inbox {
                let proven = prove(&munge, &unproven);
                if let Err(reason) = &proven {
                    tracing::warn!(reason, "a peer is not believed");
                }
                wake.post_decoded((unproven.conn, unproven.seq, proven.ok()));
            }
        })?;
    Ok(sender)
}

/// Whom the credential is from, and the daemon's answer to that one.
fn prove(munge: &Munge, unproven: &PendingCredential) -> Result<MungeAuthentication, String> {
    let decoded = munge.decode(&unproven.credential);
    let credential = decoded.map_err(|error| error.to_string())?;
    let opening = &unproven.opening;
    let peer = opening.believe_munge(&credential).map_err(|_| {
        let origin = credential.origin;
        format!("its credential, made on {origin}, is for another connection")
    })?;
    let own = opening.answer_munge(munge, &peer);
    Ok(MungeAuthentication {
        credential,
        nonce: opening.client,
        own: own.map_err(|error| error.to_string())?,
    })
}
