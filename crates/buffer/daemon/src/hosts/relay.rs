//! Passing on: a process of this host speaks with the controller through its agent, which vouches
//! for the user that the kernel names.

use std::io;
use std::sync::Arc;

use forebay_net::stream::Stream;
use forebay_protocol::address::Address;

use super::config::Identity;
use super::doors::Ticket;
use super::frame::{Incoming, MAX_BODY, MAX_REQUEST, Outgoing};
use super::greet;
use super::messages::{Role, Welcome};
use super::server::hang_up;
use forebay_control::messages::Owner;

/// How to reach the controller on behalf of others.
#[derive(Clone)]
pub struct Relay {
    /// Where it is.
    pub controller: Address,
    /// Who we are.
    pub identity: Identity,
    /// This host's name.
    pub host: String,
}

impl Relay {
    /// Serves one connection of a process on this host until it ends.
    pub fn serve(&self, near: Arc<Stream>, mut ticket: Ticket) {
        let mut near = greet::Line::new(near);
        let (far, welcome, caller) = match self.connect(&mut near, &mut ticket) {
            Ok(connected) => connected,
            Err(error) => return near.refuse(&error.to_string()),
        };
        if near.welcome(&self.identity, &caller, welcome).is_err() {
            return;
        }
        let (from, to) = (far.input, near.out);
        let down = std::thread::Builder::new()
            .name("forebay-relay".into())
            .spawn(move || pass(from, to, MAX_BODY));
        if let Ok(down) = down {
            pass(near.input, far.out, MAX_REQUEST);
            let _ = down.join();
        }
    }

    fn connect(
        &self,
        near: &mut greet::Line,
        ticket: &mut Ticket,
    ) -> io::Result<(greet::Line, Welcome, greet::Caller)> {
        let refused = |reason| io::Error::new(io::ErrorKind::PermissionDenied, reason);
        let caller = near.answer(&self.identity, ticket)?;
        let own = Owner {
            uid: caller.peer.uid,
            gid: caller.peer.gid,
        };
        let guest = (!caller.peer.trusted).then_some(own.uid);
        ticket.admit(guest).map_err(refused)?;
        let owner = match caller.role {
            Role::Client(None) => own,
            Role::Client(Some(owner)) if owner == own || caller.peer.trusted => owner,
            _ => {
                let reason = "an agent passes on only what its host's users ask for themselves";
                return Err(refused(reason.to_owned()));
            }
        };
        let role = Role::Client(Some(owner));
        let (out, input, mut welcome) = greet::dial(&self.controller, role, &self.identity)
            .map_err(|error| {
                let controller = &self.controller;
                io::Error::new(error.kind(), format!("controller {controller}: {error}"))
            })?;
        welcome.host = Some(self.host.clone());
        welcome.proof = None;
        Ok((greet::Line { out, input }, welcome, caller))
    }
}

/// Passes on what comes until either side ends, and then ends the other.
fn pass(mut from: Incoming, mut to: Outgoing, most: usize) {
    while let Ok(body) = from.receive_body(most) {
        if to.pass_on(&body).is_err() {
            break;
        }
    }
    hang_up(from.stream());
    hang_up(to.stream());
}
