//! Connections to the controller over sockets: authenticated, admitted, then read and written by
//! two threads.

use std::sync::Arc;

use forebay_net::stream::Stream;

use super::port::{Admitted, Candidate, ControllerPort};
use crate::config::Identity;
use crate::hosts::doors::{Guest, Ticket};
use crate::hosts::frame::{MAX_BODY, MAX_REQUEST};
use crate::hosts::greet;
use crate::hosts::server::hang_up;
use crate::messages::{Query, Role, ToController};

/// The user whom a connection counts against: the one who makes requests through an agent, not
/// the agent.
fn accounted_user(caller: &greet::Caller) -> Guest {
    match &caller.role {
        Role::Client(Some(owner)) if owner.uid != 0 => Some(owner.uid),
        Role::Client(_) | Role::Storage(_) | Role::Agent(_) => {
            (!caller.peer.trusted).then_some(caller.peer.uid)
        }
    }
}

/// Cost of handling a message, in requests.
fn cost(message: &ToController) -> f64 {
    match message {
        // Serializes the state of the whole pool.
        ToController::Query(_, Query::Status) => 5.0,
        ToController::Query(..)
        | ToController::Request(..)
        | ToController::Report(_)
        | ToController::Activity(_) => 1.0,
    }
}

/// Serves one connection until it ends. Blocks.
pub(super) fn serve(
    stream: Arc<Stream>,
    mut ticket: Ticket,
    port: &ControllerPort,
    identity: &Identity,
) {
    let mut line = greet::Line::new(stream.clone());
    let answered = line.answer(identity, &mut ticket);
    let answered = answered.map_err(|error| error.to_string());
    let admitted = answered.and_then(|caller| {
        ticket.admit(accounted_user(&caller))?;
        let admitted = port.connect(Candidate {
            uid: caller.peer.uid,
            gid: caller.peer.gid,
            trusted: caller.peer.trusted,
            role: caller.role.clone(),
            source: caller.from,
            munge_origin: caller.origin,
            stream: Some(stream.clone()),
        })?;
        Ok((caller, admitted))
    });
    let (caller, admitted) = match admitted {
        Ok(admitted) => admitted,
        Err(reason) => {
            tracing::warn!(reason, "connection refused");
            return line.refuse(&reason);
        }
    };
    let Admitted {
        id,
        welcome,
        outbox,
    } = admitted;
    if line.welcome(identity, &caller, welcome).is_ok() {
        let greet::Line { mut out, mut input } = line;
        let write = move || {
            while let Some(message) = outbox.next_message() {
                if out.send(&message).is_err() {
                    break;
                }
            }
            hang_up(out.stream());
        };
        let writer = std::thread::Builder::new()
            .name("forebay-write".into())
            .spawn(write);
        if writer.is_ok() {
            let max_bytes = match caller.role {
                Role::Client(_) => MAX_REQUEST,
                Role::Storage(_) | Role::Agent(_) => MAX_BODY,
            };
            while let Ok(message) = input.receive(max_bytes) {
                std::thread::sleep(ticket.pace(cost(&message)));
                if !port.deliver(id, message) {
                    break;
                }
            }
        }
    }
    hang_up(&stream);
    port.disconnect(id);
}
