//! The thread that asks `munged` about credentials: nobody else waits for it.

use super::wake::Wake;
use crate::shard::ConnId;
use forebay_wire::munge::Munge;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

/// A credential to decode: connection, call, and its bytes.
pub type Unproven = (ConnId, u64, Vec<u8>);

/// Most credentials that wait; more are refused.
const WAITING: usize = 1024;

/// Starts the thread. It ends when the sender is dropped.
pub fn start_decoder(munge: Munge, wake: Arc<Wake>) -> io::Result<SyncSender<Unproven>> {
    let (sender, inbox) = sync_channel::<Unproven>(WAITING);
    std::thread::Builder::new()
        .name("forebay-munge".into())
        .spawn(move || {
            for (conn, seq, credential) in inbox {
                let decoded = munge.decode(&credential);
                if let Err(error) = &decoded {
                    tracing::warn!(%error, "a peer's credential is not valid");
                }
                wake.decoded((conn, seq, decoded.ok()));
            }
        })?;
    Ok(sender)
}
