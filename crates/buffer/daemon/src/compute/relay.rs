//! The relay: processes of this host reach the controller through its agent, which vouches for the
//! user that the kernel names.

use std::io;
use std::sync::Arc;

use forebay_control::messages::Owner;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;

use crate::config::Identity;
use crate::hosts::doors::Ticket;
use crate::hosts::frame::{Incoming, MAX_BODY, MAX_REQUEST, Outgoing};
use crate::hosts::greet;
use crate::hosts::server::hang_up;
use crate::messages::{Role, Welcome};

/// An agent's relay.
#[derive(Clone)]
pub(crate) struct Relay {
    pub controller: Address,
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
            .spawn(move || relay_messages(from, to, MAX_BODY));
        if let Ok(down) = down {
            relay_messages(near.input, far.out, MAX_REQUEST);
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
            Role::Client(Some(_)) | Role::Storage(_) | Role::Agent(_) => {
                let reason = "an agent relays only its host's users' own requests";
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

/// Relays messages until either side ends, and then ends the other.
fn relay_messages(mut from: Incoming, mut to: Outgoing, max_bytes: usize) {
    while let Ok(body) = from.receive_body(max_bytes) {
        if to.pass_on(&body).is_err() {
            break;
        }
    }
    hang_up(from.stream());
    hang_up(to.stream());
}
