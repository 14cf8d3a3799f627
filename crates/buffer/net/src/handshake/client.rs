//! The client's side of a handshake.

use super::{
    Answer, Binding, Identity, MAX_NOISE_BYTES, Method, Opening, Proof, Refusal, Service, VERSION,
    Verdict, handshake_frame, noise_state, receive_body, refused,
};
use crate::auth::{self, Authenticator};
use crate::channel::{Receiver, Sender};
use crate::frame::{self, FrameError};
use crate::munge::Munge;
use crate::record::{DataProtection, RecordCipher};
use snow::HandshakeState;
use std::fmt;
use std::io;
use std::net::SocketAddr;

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
                let refused = |error| refused(Refusal::munge(&error));
                Identity::Munge(credential.map_err(refused)?)
            }
            None => {
                let (uid, gid) = own_ids();
                Identity::Key { uid, gid }
            }
        };
        let data = match self.server.0 {
            Service::Storage | Service::Transfer => self.auth.data_protection,
            Service::Controller | Service::Workflow => None,
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
    let decoded = munge.decode(credential).map_err(|error| match error.is_temporary() {
        true => refused(Refusal::munge(&error)),
        false => not_authenticated(error),
    })?;
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
