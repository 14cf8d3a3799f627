//! Messages to the other daemons of instances: one thread and one connection for each of them.
//!
//! A message that cannot be sent now is dropped, as the protocol between daemons permits: what
//! matters is said again.

use forebay_net::auth::PoolKey;
use forebay_net::connection::Connection;
use forebay_net::frame;
use forebay_net::handshake::Dialling;
use forebay_net::munge::Munge;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::SessionRequest;
use forebay_protocol::message::{Attach, PROTOCOL_VERSION};
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::{Call, Errno, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Messages that wait for one daemon; more are dropped.
const QUEUE: usize = 4096;
/// How long to leave a daemon alone that could not be reached.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a connection may take to come about, or to take what is sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ways to the other daemons, by their addresses.
#[derive(Debug)]
pub struct PeerLinks {
    key: Option<PoolKey>,
    munge: Option<Munge>,
    senders: HashMap<String, SyncSender<Box<PeerMessage>>>,
}

impl PeerLinks {
    /// None yet; daemons on other hosts want a MUNGE credential or proof of the `key`.
    pub fn new(key: Option<PoolKey>, munge: Option<Munge>) -> PeerLinks {
        PeerLinks {
            key,
            munge,
            senders: HashMap::new(),
        }
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
            Err(error) => tracing::warn!(%error, address, "no way to another storage daemon"),
        }
    }

    fn start(&self, address: &str) -> io::Result<SyncSender<Box<PeerMessage>>> {
        let to: Address = address.parse().map_err(io::Error::other)?;
        let (sender, messages) = sync_channel(QUEUE);
        let (key, munge) = (self.key.clone(), self.munge.clone());
        std::thread::Builder::new()
            .name("forebay-peer".into())
            .stack_size(256 << 10)
            .spawn(move || {
                let dial =
                    |at, challenge| Dialling::new(munge.as_ref(), key.as_ref(), at, challenge);
                run(&to, &dial, &messages);
            })?;
        Ok(sender)
    }
}

/// Answers a challenge of the daemon at this address.
type Dial<'a> = &'a dyn Fn(SocketAddr, [u8; 32]) -> io::Result<Dialling<'a>>;

/// Send messages until there will be no more.
fn run(to: &Address, dial: Dial<'_>, messages: &Receiver<Box<PeerMessage>>) {
    let mut stream: Option<Stream> = None;
    let mut told = String::new();
    let mut failed: Option<Instant> = None;
    let mut bytes = Vec::new();
    while let Ok(first) = messages.recv() {
        bytes.clear();
        for message in std::iter::once(first).chain(messages.try_iter().take(QUEUE)) {
            let call = Call {
                seq: message.sequence,
                caller: None,
                request: Request::Peer(message),
            };
            if let Err(error) = frame::encode_call(&mut bytes, &call, 0) {
                tracing::error!(%error, "a message between storage daemons is too long");
            }
        }
        if failed.is_some_and(|at| at.elapsed() < PAUSE) {
            continue;
        }
        if stream.as_ref().is_some_and(is_closed) {
            stream = None;
        }
        let open = match stream.take() {
            Some(open) => Ok(open),
            None => connect(to, dial),
        };
        match open.and_then(|open| open.send_all(&bytes, &[], None).map(|()| open)) {
            Ok(open) => (stream, failed, told) = (Some(open), None, String::new()),
            Err(error) => {
                tracing::debug!(%error, %to, "a storage daemon cannot be reached");
                let reason = error.to_string();
                if error.kind() == io::ErrorKind::PermissionDenied && reason != told {
                    tracing::error!(reason, %to, "nothing is said to whoever listens there");
                    told = reason;
                }
                failed = Some(Instant::now());
            }
        }
    }
}

/// The other side never says anything, so whatever there is to receive is its end.
fn is_closed(stream: &Stream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    !matches!(poll(&mut polled, Some(&now)), Ok(0))
}

fn connect(to: &Address, dial: Dial<'_>) -> io::Result<Stream> {
    let stream = Stream::connect(to, PATIENCE)?;
    stream.set_timeout(Some(PATIENCE))?;
    let Address::Tcp(at) = to else {
        return Ok(stream); // the kernel says who this is
    };
    let mut link = Connection::new(stream);
    let mut say = |seq, request| {
        let call = Call {
            seq,
            caller: None,
            request,
        };
        link.call(&call, &[], &mut []).map(|answer| answer.reply)
    };
    let hello = Attach {
        version: PROTOCOL_VERSION,
        instance: None,
        token: None,
        slot: 0,
        data_connection: false,
        single_cache: false,
    };
    let Reply::Challenge { nonce } = say(1, Request::Session(SessionRequest::Attach(hello)))?
    else {
        return Err(io::Error::other(Errno::EPROTO));
    };
    let dialling = dial(*at, nonce)?;
    dialling.check(&say(2, dialling.prove()?)?)?;
    Ok(link.into_stream())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_net::frame::{Flags, HEADER_BYTES};
    use forebay_net::handshake::{Daemon, Opening};
    use forebay_protocol::identity::Proof;
    use forebay_protocol::peer::{Incarnation, PeerPayload};
    use forebay_protocol::{InstanceId, NodeIndex};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn key(secret: &[u8]) -> PoolKey {
        PoolKey::new(secret).unwrap()
    }

    fn message(number: u64) -> Box<PeerMessage> {
        Box::new(PeerMessage {
            instance: InstanceId(1),
            from: NodeIndex(0),
            sender: Incarnation::default(),
            receiver: Incarnation::default(),
            sequence: number,
            payload: PeerPayload::Probe,
        })
    }

    fn hear(stream: &mut TcpStream) -> Option<Call> {
        let mut head = [0; HEADER_BYTES];
        stream.read_exact(&mut head).ok()?;
        let header = frame::parse_header(&head).unwrap();
        let mut body = vec![0; header.body];
        stream.read_exact(&mut body).ok()?;
        Some(frame::decode_body(&head, &header, &body).unwrap())
    }

    fn answer(stream: &mut TcpStream, seq: u64, reply: &Reply) {
        let mut out = Vec::new();
        frame::encode_reply(&mut out, seq, Flags::default(), reply, 0).unwrap();
        stream.write_all(&out).unwrap();
    }

    /// What one hears who listens in another daemon's place and answers with this key's proof.
    fn heard_with(own: &PoolKey) -> Option<Call> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut peers = PeerLinks::new(Some(key(b"the key of this pool")), None);
        peers.send_message(at.to_string(), message(1));
        let (mut stream, _) = listener.accept().unwrap();
        let hello = hear(&mut stream).unwrap();
        answer(&mut stream, hello.seq, &Reply::Challenge { nonce: [3; 32] });
        let Some(Call {
            seq,
            request: Request::Session(SessionRequest::Prove { proof, nonce }),
            ..
        }) = hear(&mut stream)
        else {
            panic!("no proof");
        };
        let Proof::Key { uid, gid, .. } = proof else {
            panic!("another proof than by the key");
        };
        let opening = Opening {
            with: Daemon::Storage,
            daemon: [3; 32],
            client: nonce,
            at,
        };
        let proof = own.answer(&opening.of_daemon(uid, gid));
        answer(&mut stream, seq, &Reply::Proved(proof));
        hear(&mut stream)
    }

    #[test]
    fn only_a_daemon_of_the_pool_is_told_anything() {
        let told = heard_with(&key(b"the key of this pool"));
        assert!(matches!(
            told,
            Some(Call {
                request: Request::Peer(_),
                ..
            })
        ));
        assert_eq!(heard_with(&key(b"the key of another pool")), None);
    }
}
