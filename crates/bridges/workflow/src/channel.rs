//! Calls over TCP between authenticated hosts: one request, one reply, each a frame.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_net::admission::{ConnectionLimits, ConnectionPermit, Principal, SharedAdmission};
use forebay_net::auth::Authenticator;
use forebay_net::channel::{Receiver, Sender};
use forebay_net::chunk::Chunk;
use forebay_net::connection;
use forebay_net::frame::{self, Flags, FrameError, Kind};
use forebay_net::handshake::{self, Refusal, Service};
use forebay_net::listener::Listener;
use forebay_net::stream::Stream;
use forebay_protocol::PeerIdentity;
use forebay_protocol::address::Address;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest request or reply, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Time for connecting and authenticating.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The client's end of a connection.
pub struct Client {
    sender: Sender,
    receiver: Receiver,
}

impl Client {
    /// Connects to a server of workflows. Both sides authenticate.
    ///
    /// # Errors
    /// `PermissionDenied` if either side refuses the other.
    pub fn connect(at: SocketAddr, auth: &Authenticator) -> io::Result<Client> {
        let address = Address::Tcp(at);
        let (sender, receiver) =
            connection::connect(&address, Service::Workflow, auth, HANDSHAKE_TIMEOUT)?;
        Ok(Client { sender, receiver })
    }

    /// Makes a call whose reply has no payload.
    pub fn call<Q: Serialize, R: DeserializeOwned>(&mut self, request: &Q) -> io::Result<R> {
        self.call_with_payload(request, &mut []).map(|(reply, _)| reply)
    }

    /// Makes a call. Returns the reply and the number of bytes of its payload, now in `into`.
    pub fn call_with_payload<Q: Serialize, R: DeserializeOwned>(
        &mut self,
        request: &Q,
        into: &mut [u8],
    ) -> io::Result<(R, usize)> {
        let mut out = Vec::new();
        let fields = (Kind::Call, Flags::default(), 0);
        frame::encode(&mut out, fields, request, 0, MAX_MESSAGE_BYTES)?;
        self.sender.send(&out, None)?;
        let Some((header, body)) = self.receiver.receive(MAX_MESSAGE_BYTES)? else {
            return Err(io::ErrorKind::ConnectionReset.into());
        };
        if header.kind != Kind::Reply || header.payload > into.len() {
            return Err(FrameError::Kind.into());
        }
        let reply = frame::decode(body)?;
        let mut have = 0;
        while have < header.payload {
            match self.receiver.receive_chunk(&mut into[have..header.payload])? {
                Chunk::Data(count) => have += count,
                Chunk::End | Chunk::Failed(_) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok((reply, have))
    }
}

/// A request received by a server.
pub struct Incoming<'a> {
    /// The authenticated peer.
    pub peer: &'a PeerIdentity,
    sender: &'a mut Sender,
}

impl Incoming<'_> {
    /// Sends the reply, and behind it `payload`.
    pub fn reply(self, reply: &impl Serialize, payload: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        let fields = (Kind::Reply, Flags::default(), 0);
        frame::encode(&mut out, fields, reply, payload.len(), MAX_MESSAGE_BYTES)?;
        if payload.is_empty() {
            return self.sender.send(&out, None);
        }
        self.sender.send_chunks(&out, payload)
    }
}

/// Serves requests at an address until the listener is dropped. Each connection has a thread and a
/// state `S` of its own.
pub fn serve<Q, S>(
    at: SocketAddr,
    auth: Authenticator,
    handle: impl Fn(&mut S, Q, Incoming<'_>) -> io::Result<()> + Send + Sync + Clone + 'static,
) -> io::Result<Listener>
where
    Q: DeserializeOwned,
    S: Default,
{
    let listener = Listener::tcp(at)?;
    let limits = ConnectionLimits { trusted: 8192, user: 64, ..ConnectionLimits::default() };
    listener.serve(SharedAdmission::new(limits), move |stream, permit| {
        let served = serve_connection(&stream, &permit, &auth, &handle);
        if let Err(error) = served
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            tracing::warn!(%error, "a connection was refused");
        }
    })?;
    Ok(listener)
}

fn serve_connection<Q: DeserializeOwned, S: Default>(
    stream: &Arc<Stream>,
    permit: &ConnectionPermit,
    auth: &Authenticator,
    handle: &impl Fn(&mut S, Q, Incoming<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut sender = Sender::new(stream.clone(), None);
    let mut receiver = Receiver::new(stream.clone(), None);
    let Stream::Tcp(socket) = &**stream else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let at = socket.local_addr()?;
    stream.set_timeout(Some(HANDSHAKE_TIMEOUT))?;
    receiver.set_deadline(Some(Instant::now() + HANDSHAKE_TIMEOUT))?;
    let verifying = || permit.set_authenticating().map_err(Refusal::overload);
    let server = (Service::Workflow, at);
    let client = handshake::accept(&mut sender, &mut receiver, server, auth, verifying)?;
    receiver.set_deadline(None)?;
    let refused = |error| io::Error::new(io::ErrorKind::PermissionDenied, format!("{error}"));
    permit.admit(Principal::from(&client.peer)).map_err(refused)?;
    let mut state = S::default();
    while let Some((header, body)) = receiver.receive(MAX_MESSAGE_BYTES)? {
        if header.kind != Kind::Call || header.payload > 0 {
            return Err(FrameError::Kind.into());
        }
        let request: Q = frame::decode(body)?;
        handle(&mut state, request, Incoming { peer: &client.peer, sender: &mut sender })?;
    }
    Ok(())
}
