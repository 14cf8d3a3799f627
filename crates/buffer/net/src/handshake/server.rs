//! The server's side of a handshake.

use super::{
    Answer, Binding, Identity, MAX_NOISE_BYTES, Method, Opening, Proof, Protection, Refusal,
    Service, VERSION, Verdict, handshake_frame, noise_state, receive_body, refused,
};
use crate::auth::{self, Authenticator};
use crate::channel::{Receiver, Sender};
use crate::frame::{self, FrameError};
use crate::munge::Munge;
use crate::random::random_bytes;
use crate::record::{DataProtection, RecordCipher};
use forebay_protocol::PeerIdentity;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

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
        let decoded = munge.decode(&self.credential).map_err(|error| Refusal::munge(&error))?;
        let peer = auth::credential_peer(&decoded, &self.binding.of_client()).ok_or_else(|| {
            Refusal::authentication(format_args!(
                "the MUNGE credential, made on {}, is for another connection",
                decoded.origin
            ))
        })?;
        let own = munge.encode(&self.binding.of_server(peer.uid, peer.gid));
        let credential = Some(own.map_err(|error| Refusal::munge(&error))?);
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
