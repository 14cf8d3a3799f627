//! Beginning a connection: both sides learn who the other is, and between hosts agree on seals.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_net::auth;
use forebay_net::handshake::{Daemon, Opening};
use forebay_net::stream::Stream;
use forebay_protocol::Errno;
use forebay_protocol::address::Address;
use forebay_protocol::identity::{PeerIdentity, Proof};

use super::doors::Ticket;
use super::frame::{self, Incoming, Outgoing};
use super::seal::Secret;
use crate::config::Identity;
use crate::messages::{HandshakeReply, HandshakeRequest, Hello, Role, VERSION, Welcome};

/// How long a whole greeting may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection on which the other side acknowledges nothing for so long is broken, in
/// milliseconds.
const BROKEN_AFTER: u32 = 20_000;

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason.into())
}

/// Whom a proof is from, and on which host a MUNGE credential was made.
fn check(
    identity: &Identity,
    proof: &Proof,
    challenge: &[u8; 32],
) -> io::Result<(PeerIdentity, Option<Ipv4Addr>)> {
    let mut origin = None;
    let peer = match (proof, &identity.munge, &identity.key) {
        (Proof::Munge(credential), Some(munge), _) => {
            let credential = munge
                .decode(credential)
                .map_err(|error| refused(error.to_string()))?;
            origin = Some(credential.origin);
            auth::credential_peer(&credential, challenge)
        }
        (Proof::Key { .. }, _, Some(key)) => auth::proof_peer(key, proof, challenge),
        (Proof::Munge(_), None, _) => {
            return Err(refused("a MUNGE credential, but this side uses a pool key"));
        }
        (Proof::Key { .. }, _, None) => {
            return Err(refused("a pool key's proof, but this side uses MUNGE"));
        }
    };
    match peer {
        Ok(peer) => Ok((peer, origin)),
        Err(_) => Err(refused(
            "the proof is not valid: the keys of the two hosts differ, or the controller is found \
             at another address than it has",
        )),
    }
}

/// Makes a broken connection noticed.
fn watch_over(stream: &Stream) -> io::Result<()> {
    if let Stream::Tcp(socket) = stream {
        use rustix::net::sockopt;
        sockopt::set_tcp_user_timeout(socket, BROKEN_AFTER)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, Duration::from_secs(10))?;
        sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5))?;
    }
    Ok(())
}

/// Connects to a controller, or to an agent that passes on what is said.
pub fn dial(
    address: &Address,
    role: Role,
    identity: &Identity,
) -> io::Result<(Outgoing, Incoming, Welcome)> {
    let until = Instant::now() + PATIENCE;
    let stream = Arc::new(Stream::connect(address, PATIENCE)?);
    stream.set_timeout(Some(PATIENCE))?;
    let (mut out, mut input) = frame::halves(stream.clone(), Some(until));
    let secret = Secret::new()?;
    let client = secret.public();
    out.send(&HandshakeRequest::Hello(Hello {
        version: VERSION,
        role,
        key: client,
    }))?;
    let (answer, _) = input.receive_greeting()?;
    let welcome = match (answer, address) {
        (HandshakeReply::Refused(reason), _) => return Err(refused(reason)),
        (HandshakeReply::Challenge { key }, Address::Tcp(at)) => {
            let opening = Opening {
                with: Daemon::Controller,
                daemon: key,
                client,
                at: *at,
            };
            let proof = opening.of_client();
            let proof = auth::answer(identity.munge.as_ref(), identity.key.as_ref(), &proof);
            out.send(&HandshakeRequest::Proof(proof?))?;
            let seals = secret.agree(key, &opening)?;
            frame::seal_peer(&mut out, &mut input, seals);
            match input.receive_greeting()? {
                (HandshakeReply::Welcome(welcome), true) => {
                    believe(identity, &welcome, &opening)?;
                    welcome
                }
                (HandshakeReply::Refused(reason), _) => return Err(refused(reason)),
                _ => return Err(refused("the controller has not proved who it is")),
            }
        }
        (HandshakeReply::Welcome(welcome), Address::Unix(_)) => welcome,
        (HandshakeReply::Welcome(_), Address::Tcp(_)) => {
            return Err(refused("the controller has not proved who it is"));
        }
        _ => return Err(io::Error::other(Errno::EPROTO)),
    };
    watch_over(&stream)?;
    input.relax()?;
    Ok((out, input, *welcome))
}

/// Whoever orders mounts and removals must be the controller.
fn believe(identity: &Identity, welcome: &Welcome, opening: &Opening) -> io::Result<()> {
    let Some(proof) = &welcome.proof else {
        return Err(refused("the controller has not proved who it is"));
    };
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let (peer, _) = check(identity, proof, &opening.of_daemon(uid, gid))
        .map_err(|error| refused(format!("the controller is not believed: {error}")))?;
    if !peer.trusted {
        return Err(refused(format!(
            "the controller runs as user {}, who is neither root nor this process's user",
            peer.uid
        )));
    }
    Ok(())
}

/// Who has connected, and as what.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The process at the other end.
    pub peer: PeerIdentity,
    /// What it is.
    pub role: Role,
    /// The address it has connected from; `None` on a Unix socket.
    pub from: Option<IpAddr>,
    /// The host on which its MUNGE credential was made, as that host's `munged` says.
    pub origin: Option<Ipv4Addr>,
    /// What the controller's proof has to answer; `None` on a Unix socket.
    challenge: Option<[u8; 32]>,
}

/// Both directions of a connection that is being greeted.
pub struct Line {
    /// To the other side.
    pub out: Outgoing,
    /// From it.
    pub input: Incoming,
}

impl Line {
    /// A connection that has just been made.
    pub fn new(stream: Arc<Stream>) -> Line {
        let (out, input) = frame::halves(stream, Some(Instant::now() + PATIENCE));
        Line { out, input }
    }

    /// The controller's side up to the point where it knows who is there. Blocks for at most some
    /// seconds.
    pub fn answer(&mut self, identity: &Identity, ticket: &mut Ticket) -> io::Result<Caller> {
        let stream = self.out.stream().clone();
        stream.set_timeout(Some(PATIENCE))?;
        let (HandshakeRequest::Hello(hello), _) = self.input.receive_greeting()? else {
            return Err(refused("the first message is no greeting"));
        };
        if hello.version != VERSION {
            return Err(refused(format!(
                "version {} of the control protocol, but this side speaks {VERSION}",
                hello.version
            )));
        }
        let caller = match &*stream {
            Stream::Unix(socket) => Caller {
                peer: auth::unix_peer(socket)?,
                role: hello.role,
                from: None,
                origin: None,
                challenge: None,
            },
            Stream::Tcp(socket) => {
                let ends = (socket.local_addr()?, socket.peer_addr()?);
                self.challenge(identity, ticket, hello, ends)?
            }
        };
        watch_over(&stream)?;
        Ok(caller)
    }

    fn challenge(
        &mut self,
        identity: &Identity,
        ticket: &mut Ticket,
        hello: Hello,
        (at, from): (SocketAddr, SocketAddr),
    ) -> io::Result<Caller> {
        let secret = Secret::new()?;
        let opening = Opening {
            with: Daemon::Controller,
            daemon: secret.public(),
            client: hello.key,
            at,
        };
        self.out.send(&HandshakeReply::Challenge {
            key: opening.daemon,
        })?;
        let (HandshakeRequest::Proof(proof), _) = self.input.receive_greeting()? else {
            return Err(refused("no proof in answer to the challenge"));
        };
        ticket.proving().map_err(refused)?;
        let (peer, origin) = check(identity, &proof, &opening.of_client())?;
        let challenge = opening.of_daemon(peer.uid, peer.gid);
        let seals = secret.agree(hello.key, &opening)?;
        frame::seal_controller(&mut self.out, &mut self.input, seals);
        Ok(Caller {
            peer,
            role: hello.role,
            from: Some(from.ip().to_canonical()),
            origin,
            challenge: Some(challenge),
        })
    }

    /// Lets them in. From now on nobody has to hurry.
    pub fn welcome(
        &mut self,
        identity: &Identity,
        caller: &Caller,
        mut welcome: Welcome,
    ) -> io::Result<()> {
        if let Some(challenge) = &caller.challenge {
            let proof = auth::answer(identity.munge.as_ref(), identity.key.as_ref(), challenge);
            welcome.proof = Some(proof?);
        }
        self.out.send(&HandshakeReply::Welcome(Box::new(welcome)))?;
        self.input.relax()
    }

    /// Tells them why not.
    pub fn refuse(self, reason: &str) {
        // They may have gone; then there is nobody to tell. Nothing that was agreed upon holds.
        let (mut bare, _) = frame::halves(self.out.stream().clone(), None);
        let _ = bare.send(&HandshakeReply::Refused(reason.to_owned()));
    }
}
