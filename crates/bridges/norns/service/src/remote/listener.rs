//! Serving the transfers of other nodes.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_net::admission::{ConnectionLimits, ConnectionPermit, Principal, SharedAdmission};
use forebay_net::channel::{Receiver, Sender};
use forebay_net::frame::Kind;
use forebay_net::handshake::{self, Refusal, Service};
use forebay_net::listener::Listener;
use forebay_net::stream::Stream;
use forebay_stage::end::LocalFileSystem;

use super::connection::Messages;
use super::operations::Files;
use super::wire::{Answer, Call, MAX_PAYLOAD_BYTES, Session, VERSION};
use crate::service::Context;

/// Time for the handshake and the first message.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a session without calls ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Sessions at a time, each with a thread.
const MAX_SESSIONS: usize = 1024;

/// Listens for the services of other nodes.
pub(crate) fn listen(ctx: &Arc<Context>) -> io::Result<Option<Listener>> {
    let Some(network) = &ctx.network else { return Ok(None) };
    let listener = Listener::tcp(network.address)?;
    let limits = ConnectionLimits { trusted: MAX_SESSIONS, ..ConnectionLimits::default() };
    let ctx = ctx.clone();
    let serve = move |stream: Arc<Stream>, permit: ConnectionPermit| {
        if let Err(error) = serve_connection(&ctx, &stream, &permit) {
            tracing::warn!(%error, "a transfer of another node has failed");
        }
    };
    listener.serve(SharedAdmission::new(limits), serve)?;
    Ok(Some(listener))
}

fn serve_connection(
    ctx: &Context,
    stream: &Arc<Stream>,
    permit: &ConnectionPermit,
) -> io::Result<()> {
    let (Some(network), Stream::Tcp(socket)) = (&ctx.network, &**stream) else {
        return Ok(());
    };
    stream.set_timeout(Some(HANDSHAKE_TIMEOUT))?;
    let mut sender = Sender::new(stream.clone(), None);
    let mut receiver = Receiver::new(stream.clone(), None);
    receiver.set_deadline(Some(Instant::now() + HANDSHAKE_TIMEOUT))?;
    let server = (Service::Transfer, socket.local_addr()?);
    let verifying = || permit.set_authenticating().map_err(Refusal::overload);
    let client = handshake::accept(&mut sender, &mut receiver, server, &network.auth, verifying)?;
    receiver.set_deadline(None)?;
    stream.set_timeout(Some(IDLE_TIMEOUT))?;
    let mut messages = Messages::new(sender, receiver);
    let Some((session, _)) = messages.receive::<Session>(Kind::Call, &mut [])? else {
        return Ok(());
    };
    let admitted = match client.peer.trusted {
        true => permit.admit(Principal::Trusted).map_err(|reason| reason.to_string()),
        false => Err("the peer is neither root nor the user of this service".to_owned()),
    };
    let files = match admitted.and_then(|()| open_session(ctx, session)) {
        Ok(files) => files,
        Err(reason) => return messages.send(Kind::Reply, &Answer::Refused(reason), &[]),
    };
    messages.send(Kind::Reply, &Answer::Done, &[])?;
    serve_session(files, &mut messages)
}

/// Begins a session: the user, or the user's job on this node, must be permitted to use the
/// dataspace.
fn open_session(ctx: &Context, session: Session) -> Result<Files<'_>, String> {
    let Session { version, user, job, nsid } = &session;
    if *version != VERSION {
        return Err(format!(
            "version mismatch: the peer has version {version}, this node {VERSION}"
        ));
    }
    let own = rustix::process::geteuid().as_raw();
    let identity = user.identity().map_err(|error| error.to_string())?;
    let is_trusted = user.uid == 0 || user.uid == own;
    let registry = ctx.registry.lock();
    registry.authorize_job(is_trusted, *job, nsid).map_err(|(_, reason)| reason)?;
    drop(registry);
    let mount = ctx.mount_of(nsid).ok_or_else(|| format!("there is no dataspace `{nsid}`"))?;
    let fs = LocalFileSystem::open(std::slice::from_ref(&mount), identity);
    Ok(Files::new(ctx, session, mount, fs))
}

fn serve_session(mut files: Files<'_>, messages: &mut Messages) -> io::Result<()> {
    let (mut received, mut read) = (vec![0; MAX_PAYLOAD_BYTES], vec![0; MAX_PAYLOAD_BYTES]);
    while let Some((call, length)) = messages.receive::<Call>(Kind::Call, &mut received)? {
        let payload = received.get(..length).unwrap_or_default();
        let (answer, count) = files.answer(call, payload, &mut read);
        messages.send(Kind::Reply, &answer, read.get(..count).unwrap_or_default())?;
    }
    Ok(())
}
