//! The handshake of a TCP connection: both sides agree on keys by the
//! [Noise protocol](https://noiseprotocol.org/noise.html) and authenticate each other.
//!
//! ```text
//! client                               server
//! Opening {method, ephemeral key}  ->
//!                                  <-  Answer {ephemeral key}, or a refusal in clear
//! Proof                            ->                          (encrypted from here on)
//!                                  <-  Verdict {proof, keys for data}, or a refusal
//! ```
//!
//! With the pool's key the pattern is `NNpsk0`: neither side can compute the session's keys without
//! it, and the prologue binds the session to the address at which the client reached the server.
//! Holders of the key are trusted to name the user they act for, as root on a cluster's own nodes
//! is. With MUNGE the pattern is `NN`, which authenticates nobody; each side then shows a MUNGE
//! credential whose payload is derived from the session's handshake hash and that address (channel
//! binding): a peer in between would have a session of its own, and a different hash, with each
//! side. The server's credential also names the client's user and group. The two credentials are
//! derived under different contexts, so neither is of use as the other, nor to another kind of
//! server.
//!
//! An address that is translated on the way (NAT, a forwarded port) therefore does not work.

use crate::auth::{self, Authenticator, PoolKey};
use crate::channel::{Receiver, Sender};
use crate::frame::{self, Flags, FrameError, Kind, MAX_UNAUTHENTICATED_BODY_BYTES};
use crate::munge::{Munge, MungeError};
use crate::record::{DataProtection, ReceiveGuard, SendGuard, guards};
use forebay_protocol::Errno;
use forebay_protocol::identity::PeerIdentity;
use forebay_protocol::random::random_nonce;
use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Version of the handshake's messages.
const VERSION: u16 = 1;
/// Longest Noise message of a handshake, in bytes.
const MAX_NOISE_BYTES: usize = 256;

/// Kinds of server. A session or credential for one is of no use with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A storage daemon.
    Storage,
    /// A pool's controller.
    Controller,
}

impl Service {
    /// Contexts of its clients' credentials and of its own.
    fn contexts(self) -> [&'static str; 2] {
        match self {
            Service::Storage => ["forebay storage daemon's client 3", "forebay storage daemon 3"],
            Service::Controller => ["forebay controller's client 3", "forebay controller 3"],
        }
    }
}

/// How the two sides authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Method {
    /// By the pool's key.
    Key,
    /// By MUNGE credentials.
    Munge,
}

/// The client's first message.
#[derive(Debug, Serialize, Deserialize)]
struct Opening {
    version: u16,
    method: Method,
    noise: Vec<u8>,
}

/// The server's first message.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Accepted { noise: Vec<u8> },
    Refused(Refusal),
}

/// The client's second message: its identity.
#[derive(Debug, Serialize, Deserialize)]
enum Proof {
    /// A holder of the pool's key acts for this user and group.
    Key { uid: u32, gid: u32 },
    /// A MUNGE credential over the client's challenge.
    Munge(Vec<u8>),
}

/// The server's second message.
#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    Accepted {
        /// The server's MUNGE credential, if the client has shown one.
        credential: Option<Vec<u8>>,
        /// Protection of bulk data.
        data: DataProtection,
        /// Keys of data's hashes, to the server and to the client.
        mac: [[u8; 32]; 2],
    },
    Refused(Refusal),
}

/// Why a server refuses a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Error number.
    pub errno: Errno,
    /// For the peer's log.
    pub reason: String,
}

impl Refusal {
    /// The peer is not the one it claims to be.
    pub fn authentication(reason: impl fmt::Display) -> Refusal {
        Refusal { errno: Errno::EKEYREJECTED, reason: format!("authentication failed: {reason}") }
    }

    /// The server has too much to do at the moment.
    pub fn overload(reason: impl fmt::Display) -> Refusal {
        Refusal { errno: Errno::EAGAIN, reason: format!("connection refused: {reason}") }
    }

    fn protocol(reason: impl fmt::Display) -> Refusal {
        Refusal { errno: Errno::EPROTO, reason: format!("handshake failed: {reason}") }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Refusal {
        Refusal::protocol(error)
    }
}

/// The server has not authenticated itself as one of the pool's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNotAuthenticated(String);

impl fmt::Display for ServerNotAuthenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "authentication failed: the server is not one of the pool's: {}", self.0)
    }
}

impl std::error::Error for ServerNotAuthenticated {}

fn not_authenticated(reason: impl fmt::Display) -> io::Error {
    let reason = ServerNotAuthenticated(reason.to_string());
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

fn address_bytes(at: SocketAddr) -> [u8; 18] {
    let ip = match at.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&at.port().to_le_bytes());
    bytes
}

/// One side of a Noise handshake with the server at this address.
fn noise(
    method: Method,
    key: Option<&PoolKey>,
    (service, at): (Service, SocketAddr),
    initiator: bool,
) -> Result<HandshakeState, snow::Error> {
    let pattern = match method {
        Method::Key => "Noise_NNpsk0_25519_AESGCM_SHA256",
        Method::Munge => "Noise_NN_25519_AESGCM_SHA256",
    };
    let [context, _] = service.contexts();
    let mut prologue = context.as_bytes().to_vec();
    // With MUNGE the credentials are bound to the address: then the server refuses with a reason.
    if method == Method::Key {
        prologue.extend_from_slice(&address_bytes(at));
    }
    let mut builder = Builder::new(pattern.parse()?).prologue(&prologue)?;
    if let (Method::Key, Some(key)) = (method, key) {
        builder = builder.psk(0, key.secret())?;
    }
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

/// The payloads of MUNGE credentials of one session.
#[derive(Clone, Copy, Debug)]
struct Binding {
    service: Service,
    at: SocketAddr,
    hash: [u8; 32],
}

impl Binding {
    fn new(service: Service, at: SocketAddr, noise: &HandshakeState) -> Binding {
        let mut hash = [0; 32];
        hash.copy_from_slice(noise.get_handshake_hash());
        Binding { service, at, hash }
    }

    fn of_client(&self) -> [u8; 32] {
        let [context, _] = self.service.contexts();
        let text = [&self.hash[..], &address_bytes(self.at)].concat();
        blake3::derive_key(context, &text)
    }

    fn of_server(&self, uid: u32, gid: u32) -> [u8; 32] {
        let [_, context] = self.service.contexts();
        let text =
            [&self.hash[..], &address_bytes(self.at), &uid.to_le_bytes(), &gid.to_le_bytes()];
        blake3::derive_key(context, &text.concat())
    }
}

fn handshake_frame<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut out = Vec::new();
    let fields = (Kind::Handshake, Flags::default(), 0);
    frame::encode(&mut out, fields, message, 0, MAX_UNAUTHENTICATED_BODY_BYTES)?;
    Ok(out)
}

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The user.
    pub peer: PeerIdentity,
    /// The host on which its MUNGE credential was made, according to that host's `munged`.
    pub origin: Option<Ipv4Addr>,
    /// The server's own credential.
    credential: Option<Vec<u8>>,
}

/// A client's MUNGE credential, to be verified by [`CredentialCheck::verify`], which may block.
#[derive(Debug)]
pub struct CredentialCheck {
    credential: Vec<u8>,
    binding: Binding,
}

impl CredentialCheck {
    /// Asks `munged` for the identity, and for the server's own credential.
    pub fn verify(&self, munge: &Munge) -> Result<Authenticated, Refusal> {
        let refused = |error: MungeError| Refusal::authentication(error);
        let decoded = munge.decode(&self.credential).map_err(refused)?;
        let peer = auth::credential_peer(&decoded, &self.binding.of_client()).map_err(|_| {
            Refusal::authentication(format_args!(
                "the MUNGE credential, made on {}, is for another connection",
                decoded.origin
            ))
        })?;
        let own = munge.encode(&self.binding.of_server(peer.uid, peer.gid));
        Ok(Authenticated {
            peer,
            origin: Some(decoded.origin),
            credential: Some(own.map_err(refused)?),
        })
    }
}

/// What a server does next.
#[derive(Debug)]
pub enum Step {
    /// Send these bytes and wait for the client's proof, which arrives in records.
    Answer(Vec<u8>),
    /// Have the credential verified, then [finish](ServerHandshake::finish).
    Verify(CredentialCheck),
    /// The client is authenticated: [finish](ServerHandshake::finish).
    Authenticated(Authenticated),
}

enum State {
    Opening,
    Proof { method: Method, binding: Binding },
    Verdict,
}

/// The server's side of a handshake: messages in, messages out.
pub struct ServerHandshake {
    service: Service,
    at: SocketAddr,
    data: DataProtection,
    mac: [[u8; 32]; 2],
    state: State,
    guards: Option<(SendGuard, ReceiveGuard)>,
}

impl fmt::Debug for ServerHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandshake").finish_non_exhaustive()
    }
}

impl ServerHandshake {
    /// For a client that reached this server at the address `at`.
    pub fn new(
        service: Service,
        at: SocketAddr,
        data: DataProtection,
    ) -> io::Result<ServerHandshake> {
        Ok(ServerHandshake {
            service,
            at,
            data,
            mac: [random_nonce()?, random_nonce()?],
            state: State::Opening,
            guards: None,
        })
    }

    /// Takes the body of the client's next handshake frame.
    pub fn receive(&mut self, auth: &Authenticator, body: &[u8]) -> Result<Step, Refusal> {
        match std::mem::replace(&mut self.state, State::Verdict) {
            State::Opening => self.answer(auth, frame::decode(body)?).map(Step::Answer),
            State::Proof { method, binding } => match (method, frame::decode(body)?) {
                (Method::Key, Proof::Key { uid, gid }) => Ok(Step::Authenticated(Authenticated {
                    peer: auth::key_peer(uid, gid),
                    origin: None,
                    credential: None,
                })),
                (Method::Munge, Proof::Munge(credential)) => {
                    Ok(Step::Verify(CredentialCheck { credential, binding }))
                }
                (Method::Key, Proof::Munge(_)) | (Method::Munge, Proof::Key { .. }) => {
                    Err(Refusal::protocol("a proof of another method"))
                }
            },
            State::Verdict => Err(Refusal::protocol("a message too many")),
        }
    }

    fn answer(&mut self, auth: &Authenticator, opening: Opening) -> Result<Vec<u8>, Refusal> {
        if opening.version != VERSION {
            return Err(Refusal::protocol(format_args!(
                "version mismatch: the client uses version {}, the server {VERSION}",
                opening.version
            )));
        }
        match (opening.method, &auth.key, &auth.munge) {
            (Method::Key, Some(_), _) | (Method::Munge, _, Some(_)) => {}
            (Method::Key, None, _) => {
                return Err(Refusal::authentication(
                    "the client uses a pool key, the server does not",
                ));
            }
            (Method::Munge, _, None) => {
                return Err(Refusal::authentication("the client uses MUNGE, the server does not"));
            }
        }
        let failed = |error: snow::Error| Refusal::protocol(error);
        let server = (self.service, self.at);
        let mut noise = noise(opening.method, auth.key.as_ref(), server, false).map_err(failed)?;
        let mut buffer = [0; MAX_NOISE_BYTES];
        noise.read_message(&opening.noise, &mut buffer).map_err(|_| {
            Refusal::authentication(
                "the pool keys of the two hosts differ, or the client reached the server at an \
                 address that is not its own",
            )
        })?;
        let count = noise.write_message(&[], &mut buffer).map_err(failed)?;
        let answer = Answer::Accepted { noise: buffer[..count].to_vec() };
        self.state = State::Proof {
            method: opening.method,
            binding: Binding::new(self.service, self.at, &noise),
        };
        assert!(noise.is_handshake_finished(), "both patterns have two messages");
        let transport = noise.into_stateless_transport_mode().map_err(failed)?;
        let (mut send, mut receive) = guards(transport);
        send.protect_data(self.data, self.mac[1]);
        receive.protect_data(self.data, self.mac[0]);
        self.guards = Some((send, receive));
        Ok(handshake_frame(&answer)?)
    }

    /// The guards of the connection, once there are any: everything after the answer is in records.
    pub fn take_guards(&mut self) -> Option<(SendGuard, ReceiveGuard)> {
        self.guards.take()
    }

    /// The last message, to be sent in records: the client is let in.
    pub fn finish(&self, client: &Authenticated) -> Result<Vec<u8>, FrameError> {
        debug_assert!(matches!(self.state, State::Verdict));
        handshake_frame(&Verdict::Accepted {
            credential: client.credential.clone(),
            data: self.data,
            mac: self.mac,
        })
    }

    /// The last message if the client is refused: in records, if there are guards already.
    pub fn refuse(sealed: bool, refusal: &Refusal) -> Result<Vec<u8>, FrameError> {
        if sealed {
            handshake_frame(&Verdict::Refused(refusal.clone()))
        } else {
            handshake_frame(&Answer::Refused(refusal.clone()))
        }
    }
}

/// The server's handshake on a blocking socket. The caller has limited the time. `verifying` is
/// called before the client's proof is verified.
pub fn accept(
    sender: &mut Sender,
    receiver: &mut Receiver,
    handshake: &mut ServerHandshake,
    auth: &Authenticator,
    mut verifying: impl FnMut() -> Result<(), Refusal>,
) -> io::Result<Authenticated> {
    let mut run = || -> io::Result<Authenticated> {
        loop {
            match handshake.receive(auth, receive_body(receiver)?).map_err(refused)? {
                Step::Answer(bytes) => {
                    sender.send(&bytes, None)?;
                    if let Some((send, receive)) = handshake.take_guards() {
                        sender.set_guard(send);
                        receiver.set_guard(receive);
                    }
                }
                Step::Verify(check) => {
                    verifying().map_err(refused)?;
                    let Some(munge) = &auth.munge else {
                        return Err(refused(Refusal::authentication("MUNGE is not in use")));
                    };
                    return check.verify(munge).map_err(refused);
                }
                Step::Authenticated(client) => {
                    verifying().map_err(refused)?;
                    return Ok(client);
                }
            }
        }
    };
    let outcome = run();
    if let Err(error) = &outcome
        && let Some(refusal) = refusal_for(error)
    {
        // The client may have gone already.
        let _ = ServerHandshake::refuse(sender.has_guard(), &refusal)
            .map(|bytes| sender.send(&bytes, None));
    }
    outcome
}

/// The refusal to send after this error; none if the connection is broken.
fn refusal_for(error: &io::Error) -> Option<Refusal> {
    let inner = error.get_ref()?;
    let refusal = inner.downcast_ref::<Refusal>().cloned();
    refusal.or_else(|| {
        let error = inner.downcast_ref::<FrameError>()?;
        Some(Refusal::from(*error))
    })
}

/// Lets an authenticated client in.
pub fn admit(
    sender: &mut Sender,
    handshake: &ServerHandshake,
    client: &Authenticated,
) -> io::Result<()> {
    sender.send(&handshake.finish(client)?, None)
}

fn refused(refusal: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, refusal)
}

/// The client's side of a handshake: messages in, messages out.
pub struct ClientHandshake {
    auth: Authenticator,
    server: (Service, SocketAddr),
    noise: Option<HandshakeState>,
    binding: Option<Binding>,
}

impl ClientHandshake {
    /// A handshake with the server at this address, and its first message.
    pub fn new(
        server: (Service, SocketAddr),
        auth: &Authenticator,
    ) -> io::Result<(ClientHandshake, Vec<u8>)> {
        let method = match (&auth.munge, &auth.key) {
            (Some(_), _) => Method::Munge,
            (None, Some(_)) => Method::Key,
            (None, None) => {
                return Err(refused(Refusal::authentication(
                    "this side has neither MUNGE nor a pool key",
                )));
            }
        };
        let mut noise = noise(method, auth.key.as_ref(), server, true).map_err(io::Error::other)?;
        let mut buffer = [0; MAX_NOISE_BYTES];
        let count = noise.write_message(&[], &mut buffer).map_err(io::Error::other)?;
        let opening = handshake_frame(&Opening {
            version: VERSION,
            method,
            noise: buffer[..count].to_vec(),
        })?;
        let handshake =
            ClientHandshake { auth: auth.clone(), server, noise: Some(noise), binding: None };
        Ok((handshake, opening))
    }

    /// Takes the body of the server's answer. Everything after it is in records. Without MUNGE the
    /// server is authenticated then: it has the pool's key.
    pub fn receive_answer(&mut self, body: &[u8]) -> io::Result<(SendGuard, ReceiveGuard)> {
        let answer = match frame::decode(body)? {
            Answer::Accepted { noise } => noise,
            Answer::Refused(refusal) => return Err(refused(refusal)),
        };
        let mut noise = self.noise.take().ok_or(FrameError::Kind)?;
        let mut buffer = [0; MAX_NOISE_BYTES];
        noise
            .read_message(&answer, &mut buffer)
            .map_err(|_| not_authenticated("it does not have the pool's key"))?;
        let (service, at) = self.server;
        self.binding = Some(Binding::new(service, at, &noise));
        assert!(noise.is_handshake_finished(), "both patterns have two messages");
        let transport = noise.into_stateless_transport_mode();
        Ok(guards(transport.map_err(io::Error::other)?))
    }

    /// The second message, which proves this process's identity to the server.
    pub fn proof(&self) -> io::Result<Vec<u8>> {
        let (uid, gid) = own_ids();
        let proof = match &self.auth.munge {
            Some(munge) => {
                let binding = self.binding.as_ref().ok_or(FrameError::Kind)?;
                let credential = munge.encode(&binding.of_client());
                Proof::Munge(credential.map_err(|error| refused(Refusal::authentication(error)))?)
            }
            None => Proof::Key { uid, gid },
        };
        Ok(handshake_frame(&proof)?)
    }

    /// Takes the body of the server's verdict, and authenticates the server, if that is by MUNGE.
    /// Returns the protection of bulk data, and the keys of their hashes to the server and to the
    /// client.
    pub fn receive_verdict(&self, body: &[u8]) -> io::Result<(DataProtection, [[u8; 32]; 2])> {
        match frame::decode(body)? {
            Verdict::Refused(refusal) => Err(refused(refusal)),
            Verdict::Accepted { credential, data, mac } => {
                if let Some(munge) = &self.auth.munge {
                    let binding = self.binding.as_ref().ok_or(FrameError::Kind)?;
                    let (uid, gid) = own_ids();
                    let challenge = binding.of_server(uid, gid);
                    check_server(munge, credential.as_deref(), &challenge)?;
                }
                Ok((data, mac))
            }
        }
    }
}

fn own_ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

fn receive_body(receiver: &mut Receiver) -> io::Result<&[u8]> {
    let Some((header, body)) = receiver.receive(MAX_UNAUTHENTICATED_BODY_BYTES)? else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    if header.kind != Kind::Handshake {
        return Err(FrameError::Kind.into());
    }
    Ok(body)
}

/// The client's handshake with the server at this address. The caller has limited the time.
///
/// A server's refusal comes back as a [`Refusal`] in the error, a server that fails to authenticate
/// itself as [`ServerNotAuthenticated`].
pub fn connect(
    sender: &mut Sender,
    receiver: &mut Receiver,
    server: (Service, SocketAddr),
    auth: &Authenticator,
) -> io::Result<()> {
    let (mut handshake, opening) = ClientHandshake::new(server, auth)?;
    sender.send(&opening, None)?;
    let (send, receive) = handshake.receive_answer(receive_body(receiver)?)?;
    sender.set_guard(send);
    receiver.set_guard(receive);
    sender.send(&handshake.proof()?, None)?;
    let (data, [up, down]) = handshake.receive_verdict(receive_body(receiver)?)?;
    sender.protect_data(data, up);
    receiver.protect_data(data, down);
    Ok(())
}

/// The server must be root or this process's own user.
fn check_server(munge: &Munge, credential: Option<&[u8]>, challenge: &[u8; 32]) -> io::Result<()> {
    let Some(credential) = credential else {
        return Err(not_authenticated("it showed no credential"));
    };
    let decoded = munge.decode(credential).map_err(not_authenticated)?;
    let peer = auth::credential_peer(&decoded, challenge)
        .map_err(|_| not_authenticated("its credential is for another connection"))?;
    if !peer.trusted {
        return Err(not_authenticated(format_args!(
            "it runs as user {}, who is neither root nor this process's user",
            peer.uid
        )));
    }
    Ok(())
}
