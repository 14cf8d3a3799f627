//! Beginning a connection: both sides learn who the other is.

use std::io;
use std::time::Duration;

use forebay_wire::Errno;
use forebay_wire::auth::{self, Peer, Proof};
use forebay_wire::stream::{Address, Stream};

use super::config::Identity;
use super::frame::{self, MAX_BODY, MAX_UNKNOWN};
use super::message::{Downward, Hello, Role, Upward, VERSION, Welcome};

/// How long the other side may take for each step.
const PATIENCE: Duration = Duration::from_secs(10);
/// A connection on which the other side acknowledges nothing for so long is broken, in
/// milliseconds.
const BROKEN_AFTER: u32 = 20_000;

/// Contexts of the two sides' proofs: neither is of use as the other.
const OF_PEER: &str = "forebay controller's peer 1";
const OF_CONTROLLER: &str = "forebay controller 1";

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason.into())
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    auth::random(&mut bytes)?;
    Ok(bytes)
}

/// Whom a proof is from.
fn check(identity: &Identity, proof: &Proof, challenge: &[u8; 32]) -> io::Result<Peer> {
    let peer = match (proof, &identity.munge, &identity.key) {
        (Proof::Munge(credential), Some(munge), _) => {
            let credential = munge
                .decode(credential)
                .map_err(|error| refused(error.to_string()))?;
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
    peer.map_err(|_| refused("the proof is not valid: the keys of the two hosts differ"))
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

/// Connects to a controller, or to an agent that passes on what is said. The stream blocks
/// without limit.
pub fn dial(address: &Address, role: Role, identity: &Identity) -> io::Result<(Stream, Welcome)> {
    let stream = Stream::connect(address, PATIENCE)?;
    stream.set_timeout(Some(PATIENCE))?;
    let own = nonce()?;
    let hello = Hello {
        version: VERSION,
        role,
        nonce: own,
    };
    frame::send(&stream, &Upward::Hello(hello))?;
    let mut answer = frame::receive(&stream, MAX_BODY)?;
    let mut nonces = None;
    if let Downward::Challenge { nonce: theirs } = answer {
        let challenge = auth::challenge(OF_PEER, &[theirs, own]);
        let proof = auth::answer(identity.munge.as_ref(), identity.key.as_ref(), &challenge);
        frame::send(&stream, &Upward::Proof(proof?))?;
        nonces = Some([theirs, own]);
        answer = frame::receive(&stream, MAX_BODY)?;
    }
    let welcome = match answer {
        Downward::Welcome(welcome) => welcome,
        Downward::Refused(reason) => return Err(refused(reason)),
        _ => return Err(io::Error::other(Errno::EPROTO)),
    };
    if let Stream::Tcp(_) = stream {
        // Whoever orders mounts and removals must be the controller.
        let (Some(proof), Some(nonces)) = (&welcome.proof, nonces) else {
            return Err(refused("the controller has not proved who it is"));
        };
        let challenge = auth::challenge(OF_CONTROLLER, &nonces);
        let peer = check(identity, proof, &challenge)
            .map_err(|error| refused(format!("the controller is not believed: {error}")))?;
        if !peer.trusted {
            return Err(refused(format!(
                "the controller runs as user {}, who is neither root nor this process's user",
                peer.uid
            )));
        }
    }
    watch_over(&stream)?;
    stream.set_timeout(None)?;
    Ok((stream, *welcome))
}

/// Who has connected, and as what.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The process at the other end.
    pub peer: Peer,
    /// What it is.
    pub role: Role,
    /// What the controller's proof has to answer; `None` on a Unix socket.
    challenge: Option<[u8; 32]>,
}

/// The controller's side up to the point where it knows who is there. Blocks for at most some
/// seconds.
pub fn answer(stream: &Stream, identity: &Identity) -> io::Result<Caller> {
    stream.set_timeout(Some(PATIENCE))?;
    let Upward::Hello(hello) = frame::receive(stream, MAX_UNKNOWN)? else {
        return Err(refused("the first message is no greeting"));
    };
    if hello.version != VERSION {
        return Err(refused(format!(
            "version {} of the control protocol, but this side speaks {VERSION}",
            hello.version
        )));
    }
    let (peer, challenge) = match stream {
        Stream::Unix(socket) => (auth::unix_peer(socket)?, None),
        Stream::Tcp(_) => {
            let own = nonce()?;
            frame::send(stream, &Downward::Challenge { nonce: own })?;
            let Upward::Proof(proof) = frame::receive(stream, MAX_UNKNOWN)? else {
                return Err(refused("no proof in answer to the challenge"));
            };
            let nonces = [own, hello.nonce];
            let peer = check(identity, &proof, &auth::challenge(OF_PEER, &nonces))?;
            (peer, Some(auth::challenge(OF_CONTROLLER, &nonces)))
        }
    };
    watch_over(stream)?;
    Ok(Caller {
        peer,
        role: hello.role,
        challenge,
    })
}

/// Lets them in. The stream blocks without limit from now on.
pub fn welcome(
    stream: &Stream,
    identity: &Identity,
    caller: &Caller,
    mut welcome: Welcome,
) -> io::Result<()> {
    if let Some(challenge) = &caller.challenge {
        let proof = auth::answer(identity.munge.as_ref(), identity.key.as_ref(), challenge);
        welcome.proof = Some(proof?);
    }
    frame::send(stream, &Downward::Welcome(Box::new(welcome)))?;
    stream.set_timeout(None)
}

/// Tells them why not.
pub fn refuse(stream: &Stream, reason: &str) {
    // They may have gone; then there is nobody to tell.
    let _ = frame::send(stream, &Downward::Refused(reason.to_owned()));
}
