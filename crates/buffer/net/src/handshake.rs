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
//! it. The prologue binds the session to the address at which the client reached the server. Holders
//! of the key are trusted about the user they act for, as root of a cluster's node is. With MUNGE the
//! pattern is `NN`, which authenticates nobody; each side then sends a MUNGE credential whose payload
//! is derived from the session's handshake hash and that address (channel binding). A relay would
//! have sessions of its own, with other hashes, with both sides. The server's credential also
//! contains the client's user and group. The contexts of the two derivations differ, so neither
//! credential can be used as the other, nor for another kind of server.
//!
//! Address translation between client and server (NAT, a forwarded port) therefore fails.

use crate::auth::{self, Authenticator, PoolKey};
use crate::channel::{Receiver, Sender};
use crate::frame::{self, Flags, FrameError, Kind, MAX_UNAUTHENTICATED_BODY_BYTES};
use crate::munge::Munge;
use crate::random::random_bytes;
use crate::record::{DataProtection, RecordCipher};
use forebay_protocol::{Errno, PeerIdentity};
use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Version of the handshake's messages.
const VERSION: u16 = 2;
/// Longest Noise message of a handshake, in bytes.
const MAX_NOISE_BYTES: usize = 256;

/// Kinds of server. A session or credential for one is not valid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A storage daemon.
    Storage,
    /// A pool's controller.
    Controller,
}

impl Service {
    /// The contexts of its clients' credentials and of its own.
    fn contexts(self) -> [&'static str; 2] {
        match self {
            Service::Storage => ["forebay storage daemon's client 3", "forebay storage daemon 3"],
            Service::Controller => ["forebay controller's client 3", "forebay controller 3"],
        }
    }
}

/// Methods of authentication.
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

/// The client's second message.
#[derive(Debug, Serialize, Deserialize)]
struct Proof {
    identity: Identity,
    /// The client's setting.
    data: Option<DataProtection>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Identity {
    /// The user and group for which a holder of the pool's key acts.
    Key { uid: u32, gid: u32 },
    /// A MUNGE credential over the client's challenge.
    Munge(Vec<u8>),
}

/// The server's second message.
#[derive(Serialize, Deserialize)]
enum Verdict {
    Accepted {
        /// The server's MUNGE credential, if the client has sent one.
        credential: Option<Vec<u8>>,
        protection: Protection,
    },
    Refused(Refusal),
}

/// Protection of bulk data, as configured on the server.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Protection {
    data: DataProtection,
    /// Keys of keyed hashes, to the server and to the client.
    mac_keys: [[u8; 32]; 2],
}

/// A server's refusal of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The error of the client's request.
    pub errno: Errno,
    /// For the client's log.
    pub reason: String,
}

impl Refusal {
    /// The peer has not proved its identity.
    pub fn authentication(reason: impl fmt::Display) -> Refusal {
        Refusal { errno: Errno::EKEYREJECTED, reason: format!("authentication failed: {reason}") }
    }

    /// The server is overloaded; the client may try again.
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

/// The server has not authenticated itself as one of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNotAuthenticated(String);

impl fmt::Display for ServerNotAuthenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "authentication failed: the server is not one of the pool: {}", self.0)
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
fn noise_state(
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
    // With MUNGE the credentials are bound to the address, so that the server can report a reason.
    if method == Method::Key {
        prologue.extend_from_slice(&address_bytes(at));
    }
    let mut builder = Builder::new(pattern.parse()?).prologue(&prologue)?;
    if let (Method::Key, Some(key)) = (method, key) {
        builder = builder.psk(0, key.secret())?;
    }
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

/// Derives the payloads of MUNGE credentials of one session.
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
        blake3::derive_key(context, &[&self.hash[..], &address_bytes(self.at)].concat())
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
    /// The host that made its MUNGE credential, according to that host's `munged`.
    pub origin: Option<Ipv4Addr>,
    /// The server's own credential.
    credential: Option<Vec<u8>>,
}

/// A client's MUNGE credential that has to be verified.
#[derive(Debug)]
pub struct CredentialCheck {
    credential: Vec<u8>,
    binding: Binding,
}

impl CredentialCheck {
    /// Verifies the credential and makes the server's own. Blocks until `munged` replies.
    pub fn verify(&self, munge: &Munge) -> Result<Authenticated, Refusal> {
        let decoded = munge.decode(&self.credential).map_err(Refusal::authentication)?;
        let peer = auth::credential_peer(&decoded, &self.binding.of_client()).ok_or_else(|| {
            Refusal::authentication(format_args!(
                "the MUNGE credential, made on {}, is for another connection",
                decoded.origin
            ))
        })?;
        let own = munge.encode(&self.binding.of_server(peer.uid, peer.gid));
        let credential = Some(own.map_err(Refusal::authentication)?);
        Ok(Authenticated { peer, origin: Some(decoded.origin), credential })
    }
}

/// The next step of a server.
#[derive(Debug)]
pub enum Step {
    /// Send these bytes, and then use the ciphers to send and to receive.
    Answer(Vec<u8>, (RecordCipher, RecordCipher)),
    /// Verify the credential, then [finish](ServerHandshake::finish).
    Verify(CredentialCheck),
    /// The client is authenticated: [finish](ServerHandshake::finish).
    Authenticated(Authenticated),
}

enum State {
    Opening,
    Proof { method: Method, binding: Binding },
    Verdict,
}

/// The server's side of a handshake, without I/O.
pub struct ServerHandshake {
    service: Service,
    at: SocketAddr,
    state: State,
    /// Set when the opening is accepted; from then on messages are encrypted.
    protection: Option<Protection>,
}

impl fmt::Debug for ServerHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandshake").finish_non_exhaustive()
    }
}

impl ServerHandshake {
    /// A handshake with a client that reached this server at the address `at`.
    pub fn new(service: Service, at: SocketAddr) -> ServerHandshake {
        ServerHandshake { service, at, state: State::Opening, protection: None }
    }

    /// Processes the body of the client's next handshake frame.
    pub fn receive(&mut self, auth: &Authenticator, body: &[u8]) -> Result<Step, Refusal> {
        match std::mem::replace(&mut self.state, State::Verdict) {
            State::Opening => self.answer(auth, frame::decode(body)?),
            State::Proof { method, binding } => {
                let Proof { identity, data } = frame::decode(body)?;
                self.check_protection(data)?;
                match (method, identity) {
                    (Method::Key, Identity::Key { uid, gid }) => {
                        let peer = auth::key_peer(uid, gid);
                        let client = Authenticated { peer, origin: None, credential: None };
                        Ok(Step::Authenticated(client))
                    }
                    (Method::Munge, Identity::Munge(credential)) => {
                        Ok(Step::Verify(CredentialCheck { credential, binding }))
                    }
                    (Method::Key, Identity::Munge(_)) | (Method::Munge, Identity::Key { .. }) => {
                        Err(Refusal::protocol("a proof of another method"))
                    }
                }
            }
            State::Verdict => Err(Refusal::protocol("unexpected message")),
        }
    }

    fn check_protection(&self, client: Option<DataProtection>) -> Result<(), Refusal> {
        match (client, self.protection) {
            (Some(client), Some(Protection { data, .. })) if client != data => {
                Err(Refusal::protocol(format_args!(
                    "data protection mismatch: the client is configured for `{client}`, the server \
                     for `{data}`"
                )))
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    fn answer(&mut self, auth: &Authenticator, opening: Opening) -> Result<Step, Refusal> {
        let Opening { version, method, noise } = opening;
        if version != VERSION {
            return Err(Refusal::protocol(format_args!(
                "version mismatch: the client uses version {version}, the server {VERSION}"
            )));
        }
        match (method, &auth.key, &auth.munge) {
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
        let mut state = noise_state(method, auth.key.as_ref(), server, false).map_err(failed)?;
        let mut buffer = [0; MAX_NOISE_BYTES];
        state.read_message(&noise, &mut buffer).map_err(|_| {
            Refusal::authentication(
                "the pool keys of the two hosts differ, or the client reached the server at an \
                 address that is not its own",
            )
        })?;
        let count = state.write_message(&[], &mut buffer).map_err(failed)?;
        let answer = handshake_frame(&Answer::Accepted { noise: buffer[..count].to_vec() })?;
        let key = || random_bytes().map_err(Refusal::protocol);
        let (data, mac_keys) = (auth.data_protection.unwrap_or_default(), [key()?, key()?]);
        let binding = Binding::new(self.service, self.at, &state);
        assert!(state.is_handshake_finished(), "both patterns have two messages");
        let transport = state.into_stateless_transport_mode().map_err(failed)?;
        let (mut send, mut receive) = RecordCipher::pair(transport);
        receive.protect_data(data, mac_keys[0]);
        send.protect_data(data, mac_keys[1]);
        self.protection = Some(Protection { data, mac_keys });
        self.state = State::Proof { method, binding };
        Ok(Step::Answer(answer, (send, receive)))
    }

    /// The last message, which accepts the client.
    pub fn finish(&self, client: &Authenticated) -> Result<Vec<u8>, FrameError> {
        let (State::Verdict, Some(protection)) = (&self.state, self.protection) else {
            return Err(FrameError::Kind);
        };
        handshake_frame(&Verdict::Accepted { credential: client.credential.clone(), protection })
    }

    /// The last message, which refuses the client.
    pub fn refuse(&self, refusal: &Refusal) -> Result<Vec<u8>, FrameError> {
        match self.protection {
            Some(_) => handshake_frame(&Verdict::Refused(refusal.clone())),
            None => handshake_frame(&Answer::Refused(refusal.clone())),
        }
    }
}

/// The server's handshake on a blocking socket. The caller limits its time. `verifying` is called
/// before the client's proof is verified.
pub fn accept(
    sender: &mut Sender,
    receiver: &mut Receiver,
    (service, at): (Service, SocketAddr),
    auth: &Authenticator,
    verifying: impl Fn() -> Result<(), Refusal>,
) -> io::Result<Authenticated> {
    let mut handshake = ServerHandshake::new(service, at);
    let mut authenticate = || -> io::Result<Authenticated> {
        loop {
            match handshake.receive(auth, receive_body(receiver)?).map_err(refused)? {
                Step::Answer(bytes, ciphers) => {
                    sender.send(&bytes, None)?;
                    sender.set_cipher(ciphers.0);
                    receiver.set_cipher(ciphers.1);
                }
                Step::Verify(check) => {
                    verifying().map_err(refused)?;
                    let munge = auth.munge.as_ref().ok_or(FrameError::Kind)?;
                    return check.verify(munge).map_err(refused);
                }
                Step::Authenticated(client) => {
                    verifying().map_err(refused)?;
                    return Ok(client);
                }
            }
        }
    };
    let outcome = authenticate();
    match &outcome {
        Ok(client) => sender.send(&handshake.finish(client)?, None)?,
        Err(error) => {
            if let Some(refusal) = refusal_for(error) {
                // The client may have disconnected.
                let _ = handshake.refuse(&refusal).map(|bytes| sender.send(&bytes, None));
            }
        }
    }
    outcome
}

/// The refusal to send after this error; `None` if the connection is broken.
fn refusal_for(error: &io::Error) -> Option<Refusal> {
    let inner = error.get_ref()?;
    let frame_error = || inner.downcast_ref::<FrameError>().map(|error| Refusal::from(*error));
    inner.downcast_ref::<Refusal>().cloned().or_else(frame_error)
}

fn refused(refusal: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, refusal)
}

/// The client's side of a handshake, without I/O.
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
        let mut state =
            noise_state(method, auth.key.as_ref(), server, true).map_err(io::Error::other)?;
        let mut buffer = [0; MAX_NOISE_BYTES];
        let count = state.write_message(&[], &mut buffer).map_err(io::Error::other)?;
        let noise = buffer[..count].to_vec();
        let opening = handshake_frame(&Opening { version: VERSION, method, noise })?;
        let handshake =
            ClientHandshake { auth: auth.clone(), server, noise: Some(state), binding: None };
        Ok((handshake, opening))
    }

    /// Processes the body of the server's answer. All later messages use the ciphers, to send and to
    /// receive. With a pool key the server is authenticated now.
    pub fn receive_answer(&mut self, body: &[u8]) -> io::Result<(RecordCipher, RecordCipher)> {
        let answer = match frame::decode(body)? {
            Answer::Accepted { noise } => noise,
            Answer::Refused(refusal) => return Err(refused(refusal)),
        };
        let mut state = self.noise.take().ok_or(FrameError::Kind)?;
        state
            .read_message(&answer, &mut [0; MAX_NOISE_BYTES])
            .map_err(|_| not_authenticated("it does not have the pool's key"))?;
        let (service, at) = self.server;
        self.binding = Some(Binding::new(service, at, &state));
        assert!(state.is_handshake_finished(), "both patterns have two messages");
        let transport = state.into_stateless_transport_mode().map_err(io::Error::other)?;
        Ok(RecordCipher::pair(transport))
    }

    /// The second message, which proves this process's identity to the server.
    pub fn proof(&self) -> io::Result<Vec<u8>> {
        let identity = match &self.auth.munge {
            Some(munge) => {
                let binding = self.binding.as_ref().ok_or(FrameError::Kind)?;
                let credential = munge.encode(&binding.of_client());
                let refused = |error| refused(Refusal::authentication(error));
                Identity::Munge(credential.map_err(refused)?)
            }
            None => {
                let (uid, gid) = own_ids();
                Identity::Key { uid, gid }
            }
        };
        let data = match self.server.0 {
            Service::Storage => self.auth.data_protection,
            Service::Controller => None,
        };
        Ok(handshake_frame(&Proof { identity, data })?)
    }

    /// Processes the body of the server's verdict, and with MUNGE authenticates the server. Returns
    /// the protection of bulk data, and the keys of their hashes to the server and to the client.
    pub fn receive_verdict(&self, body: &[u8]) -> io::Result<(DataProtection, [[u8; 32]; 2])> {
        match frame::decode(body)? {
            Verdict::Refused(refusal) => Err(refused(refusal)),
            Verdict::Accepted { credential, protection } => {
                if let Some(munge) = &self.auth.munge {
                    let binding = self.binding.as_ref().ok_or(FrameError::Kind)?;
                    let (uid, gid) = own_ids();
                    check_server(munge, credential.as_deref(), &binding.of_server(uid, gid))?;
                }
                Ok((protection.data, protection.mac_keys))
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

/// The client's handshake on a blocking socket, with the server at this address. The caller limits
/// its time.
///
/// # Errors
/// [`Refusal`] if the server refuses the client, [`ServerNotAuthenticated`] if the server fails to
/// authenticate itself, both within the returned error.
pub fn connect(
    sender: &mut Sender,
    receiver: &mut Receiver,
    server: (Service, SocketAddr),
    auth: &Authenticator,
) -> io::Result<()> {
    let (mut handshake, opening) = ClientHandshake::new(server, auth)?;
    sender.send(&opening, None)?;
    let (send, receive) = handshake.receive_answer(receive_body(receiver)?)?;
    sender.set_cipher(send);
    receiver.set_cipher(receive);
    sender.send(&handshake.proof()?, None)?;
    let (data, [to_server, to_client]) = handshake.receive_verdict(receive_body(receiver)?)?;
    sender.protect_data(data, to_server);
    receiver.protect_data(data, to_client);
    Ok(())
}

/// Verifies that the server runs as root or as this process's user.
fn check_server(munge: &Munge, credential: Option<&[u8]>, challenge: &[u8; 32]) -> io::Result<()> {
    let credential = credential.ok_or_else(|| not_authenticated("it sent no credential"))?;
    let decoded = munge.decode(credential).map_err(not_authenticated)?;
    let peer = auth::credential_peer(&decoded, challenge)
        .ok_or_else(|| not_authenticated("its credential is for another connection"))?;
    if !peer.trusted {
        return Err(not_authenticated(format_args!(
            "it runs as user {}, who is neither root nor this process's user",
            peer.uid
        )));
    }
    Ok(())
}
