//! Messages to the other daemons of instances: one thread and one connection for each of them.
//!
//! A message that cannot be sent now is dropped, as the protocol between daemons permits: what
//! matters is said again.

use forebay_wire::auth::{self, PoolKey, Proof};
use forebay_wire::frame;
use forebay_wire::message::{Hello, PROTOCOL};
use forebay_wire::munge::Munge;
use forebay_wire::peer::PeerMessage;
use forebay_wire::stream::{Address, Link, Stream};
use forebay_wire::{Call, Errno, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
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
pub struct Peers {
    key: Option<PoolKey>,
    munge: Option<Munge>,
    senders: HashMap<String, SyncSender<Box<PeerMessage>>>,
}

impl Peers {
    /// None yet; daemons on other hosts want a MUNGE credential or proof of the `key`.
    pub fn new(key: Option<PoolKey>, munge: Option<Munge>) -> Peers {
        Peers {
            key,
            munge,
            senders: HashMap::new(),
        }
    }

    /// Send a message, or drop it.
    pub fn send(&mut self, address: String, message: Box<PeerMessage>) {
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
                let prove = |nonce: &[u8; 32]| auth::prove(munge.as_ref(), key.as_ref(), nonce);
                run(&to, &prove, &messages);
            })?;
        Ok(sender)
    }
}

/// Answers a challenge.
type Prove<'a> = &'a dyn Fn(&[u8; 32]) -> io::Result<Proof>;

/// Send messages until there will be no more.
fn run(to: &Address, prove: Prove<'_>, messages: &Receiver<Box<PeerMessage>>) {
    let mut stream: Option<Stream> = None;
    let mut failed: Option<Instant> = None;
    let mut bytes = Vec::new();
    while let Ok(first) = messages.recv() {
        bytes.clear();
        for message in std::iter::once(first).chain(messages.try_iter().take(QUEUE)) {
            let call = Call {
                seq: message.number,
                caller: None,
                request: Request::Peer(message),
            };
            if let Err(error) = frame::put_call(&mut bytes, &call, 0) {
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
            None => connect(to, prove),
        };
        match open.and_then(|open| open.send_all(&bytes, &[], None).map(|()| open)) {
            Ok(open) => (stream, failed) = (Some(open), None),
            Err(error) => {
                tracing::debug!(%error, %to, "a storage daemon cannot be reached");
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

fn connect(to: &Address, prove: Prove<'_>) -> io::Result<Stream> {
    let stream = Stream::connect(to, PATIENCE)?;
    stream.set_timeout(Some(PATIENCE))?;
    if let Address::Unix(_) = to {
        return Ok(stream); // the kernel says who this is
    }
    let mut link = Link::new(stream);
    let mut say = |seq, request| {
        let call = Call {
            seq,
            caller: None,
            request,
        };
        link.call(&call, &[], &mut []).map(|answer| answer.reply)
    };
    let hello = Hello {
        version: PROTOCOL,
        instance: None,
        resume: None,
        slot: 0,
        bulk: false,
        caches: false,
    };
    let Reply::Challenge { nonce } = say(1, Request::Hello(hello))? else {
        return Err(io::Error::other(Errno::EPROTO));
    };
    match say(2, Request::Prove(prove(&nonce)?))? {
        Reply::Done => Ok(link.into_stream()),
        Reply::Failed(errno) => Err(io::Error::other(errno)),
        _ => Err(io::Error::other(Errno::EPROTO)),
    }
}
