//! Connections to the controller over sockets: authenticated, admitted, then read and written by
//! two threads.

use std::sync::Arc;
use std::time::Instant;

use forebay_net::stream::Stream;

use super::port::{Admitted, Candidate, ControllerPort};
use crate::control_channel::{Caller, IncomingConnection, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES};
use crate::messages::{Query, Role, ToController};
use forebay_net::admission::{ConnectionPermit, Principal};
use forebay_net::auth::Authenticator;

/// The user whom a connection counts against: the one who makes requests through an agent, not
/// the agent. Each host has a limit of its own, if root of the host names the user.
fn principal(caller: &Caller) -> Principal {
    match (&caller.role, caller.source) {
        (Role::Client(Some(owner)), Some(host)) if owner.uid != 0 && caller.peer.trusted => {
            Principal::UserOnHost(owner.uid, host)
        }
        (Role::Client(Some(owner)), _) if owner.uid != 0 => Principal::User(owner.uid),
        (Role::Client(_) | Role::Storage(_) | Role::Agent(_), _) => Principal::from(&caller.peer),
    }
}

/// Cost of handling a message, in requests.
fn cost(message: &ToController) -> f64 {
    match message {
        // Serializes the state of the whole pool.
        ToController::Query(_, Query::Status) => 5.0,
        ToController::Query(_, Query::ControlStatus) => 3.0,
        ToController::Query(..)
        | ToController::Request(..)
        | ToController::Report(_)
        | ToController::Activity(_) => 1.0,
    }
}

/// Serves one connection until it ends. Blocks.
pub(super) fn serve(
    stream: Arc<Stream>,
    permit: ConnectionPermit,
    port: &ControllerPort,
    identity: &Authenticator,
) {
    let mut incoming = IncomingConnection::new(stream.clone());
    let answered = incoming.authenticate(identity, &permit);
    let address = stream.peer_address();
    if let (Err(error), Some(address)) = (&answered, address) {
        port.refused.record(address, error);
    }
    let answered = answered.map_err(|error| error.to_string());
    let admitted = answered.and_then(|caller| {
        permit.admit(principal(&caller)).map_err(|reason| reason.to_string())?;
        let admitted = port.connect(Candidate {
            uid: caller.peer.uid,
            gid: caller.peer.gid,
            trusted: caller.peer.trusted,
            role: caller.role.clone(),
            source: caller.source,
            munge_origin: caller.munge_origin,
            stream: Some(stream.clone()),
        })?;
        Ok((caller, admitted))
    });
    let (caller, admitted) = match admitted {
        Ok(admitted) => admitted,
        Err(reason) => {
            tracing::warn!(reason, ?address, "connection refused");
            return incoming.refuse(&reason);
        }
    };
    let Admitted { id, welcome, outbox } = admitted;
    if incoming.welcome(welcome).is_ok() {
        let (mut sender, mut receiver) = (incoming.sender, incoming.receiver);
        let write = move || {
            while let Some(message) = outbox.next_message() {
                if sender.send(&message).is_err() {
                    break;
                }
            }
            sender.stream().shut_down();
        };
        let writer = std::thread::Builder::new().name("forebay-write".into()).spawn(write);
        if writer.is_ok() {
            let max_bytes = match caller.role {
                Role::Client(_) => MAX_REQUEST_BYTES,
                Role::Storage(_) | Role::Agent(_) => MAX_MESSAGE_BYTES,
            };
            while let Ok(message) = receiver.receive(max_bytes) {
                std::thread::sleep(permit.request_delay(Instant::now(), cost(&message)));
                if !port.deliver(id, message) {
                    break;
                }
            }
        }
    }
    stream.shut_down();
    port.disconnect(id);
}
