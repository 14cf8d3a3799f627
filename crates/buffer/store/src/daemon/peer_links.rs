//! Messages to the other daemons of instances: one thread and one connection for each of them.
//!
//! A message that cannot be sent now is dropped, as the protocol between daemons permits: important
//! ones are retransmitted.

use forebay_net::auth::Authenticator;
use forebay_net::connection::Connection;
use forebay_net::frame;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::{Call, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Messages that wait for one daemon; more are dropped.
const MAX_QUEUED: usize = 4096;
/// Delay after a failed attempt to reach a daemon.
const CONNECT_BACKOFF: Duration = Duration::from_millis(100);
/// Time for a connection to be established, and for each send.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections to the other daemons, by their addresses.
#[derive(Debug)]
pub struct PeerLinks {
    auth: Authenticator,
    senders: HashMap<String, SyncSender<Box<PeerMessage>>>,
}

impl PeerLinks {
    /// No connections. Both sides authenticate with `auth`.
    pub fn new(auth: Authenticator) -> PeerLinks {
        PeerLinks { auth, senders: HashMap::new() }
    }

    /// Send a message, or drop it.
    pub fn send_message(&mut self, address: String, message: Box<PeerMessage>) {
        let message = match self.senders.get(&address) {
            None => message,
            Some(sender) => match sender.try_send(message) {
                Ok(()) | Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Disconnected(message)) => message,
            },
        };
        match self.start(&address) {
            Ok(sender) => {
                let _ = sender.try_send(message);
                self.senders.insert(address, sender);
            }
            Err(error) => {
                tracing::warn!(%error, address, "cannot start a connection to another storage daemon")
            }
        }
    }

    fn start(&self, address: &str) -> io::Result<SyncSender<Box<PeerMessage>>> {
        let to: Address = address.parse().map_err(io::Error::other)?;
        let (sender, messages) = sync_channel(MAX_QUEUED);
        let auth = self.auth.clone();
        std::thread::Builder::new()
            .name("forebay-peer".into())
            .stack_size(256 << 10)
            .spawn(move || run(&to, &auth, &messages))?;
        Ok(sender)
    }
}

/// Send messages until there will be no more.
fn run(to: &Address, auth: &Authenticator, messages: &Receiver<Box<PeerMessage>>) {
    let mut connection: Option<Connection> = None;
    let mut reported = String::new();
    let mut failed: Option<Instant> = None;
    let mut bytes = Vec::new();
    while let Ok(first) = messages.recv() {
        bytes.clear();
        for message in std::iter::once(first).chain(messages.try_iter().take(MAX_QUEUED)) {
            let call = Call::new(message.sequence, Request::Peer(message));
            if let Err(error) = frame::encode_call(&mut bytes, &call, 0) {
                tracing::error!(%error, "cannot encode a message to another storage daemon");
            }
        }
        if failed.is_some_and(|at| at.elapsed() < CONNECT_BACKOFF) {
            continue;
        }
        if connection.as_ref().is_some_and(|c| is_closed(c.stream())) {
            connection = None;
        }
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => connect(to, auth),
        };
        match open.and_then(|mut open| open.send_frames(&bytes).map(|()| open)) {
            Ok(open) => (connection, failed, reported) = (Some(open), None, String::new()),
            Err(error) => {
                tracing::debug!(%error, %to, "storage daemon unreachable");
                let reason = error.to_string();
                if error.kind() == io::ErrorKind::PermissionDenied && reason != reported {
                    tracing::error!(reason, %to, "not sending messages");
                    reported = reason;
                }
                failed = Some(Instant::now());
            }
        }
    }
}

/// Whether the daemon has closed the connection: it never sends anything.
fn is_closed(stream: &Stream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut polled, Some(&now)), Ok(0))
}

fn connect(to: &Address, auth: &Authenticator) -> io::Result<Connection> {
    let connection = Connection::connect(to, auth, SEND_TIMEOUT)?;
    connection.stream().set_timeout(Some(SEND_TIMEOUT))?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_net::auth::PoolKey;
    use forebay_net::channel::channel;
    use forebay_net::frame::MAX_BODY_BYTES;
    use forebay_net::handshake::{self, Service};
    use forebay_protocol::message::TrailingField;
    use forebay_protocol::peer::{Incarnation, PeerPayload};
    use forebay_protocol::{InstanceId, NodeIndex};
    use std::net::TcpListener;

    fn with_key(secret: &[u8]) -> Authenticator {
        Authenticator {
            key: Some(PoolKey::new(secret).unwrap()),
            munge: None,
            data_protection: None,
        }
    }

    fn message(number: u64) -> Box<PeerMessage> {
        Box::new(PeerMessage {
            instance: InstanceId(1),
            from: NodeIndex(0),
            sender: Incarnation::default(),
            receiver: Incarnation::default(),
            sequence: number,
            payload: PeerPayload::Probe,
            recalls_caches: TrailingField(true),
        })
    }

    /// The message that a server with this key receives in another daemon's place.
    fn received_with(own: &Authenticator) -> Option<Call> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut peers = PeerLinks::new(with_key(b"the key of this pool"));
        peers.send_message(at.to_string(), message(1));
        let (socket, _) = listener.accept().unwrap();
        let (mut sender, mut receiver) = channel(Stream::tcp(socket).unwrap());
        let server = (Service::Storage, at);
        handshake::accept(&mut sender, &mut receiver, server, own, || Ok(())).ok()?;
        let (_, body) = receiver.receive(MAX_BODY_BYTES).unwrap()?;
        Some(frame::decode(body).unwrap())
    }

    #[test]
    fn messages_are_sent_only_to_daemons_with_the_pools_key() {
        let received = received_with(&with_key(b"the key of this pool"));
        assert!(matches!(received, Some(Call { request: Request::Peer(_), .. })));
        assert_eq!(received_with(&with_key(b"the key of another pool")), None);
    }
}
