//! The relay: processes of this host reach the controller through its agent, which vouches for the
//! user that the kernel names.

use std::io;
use std::sync::Arc;

use forebay_control::messages::Owner;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;

use crate::control_channel::{
    self, ControlReceiver, ControlSender, IncomingConnection, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES,
};
use crate::messages::{Role, Welcome};
use forebay_net::admission::{ConnectionPermit, Principal};
use forebay_net::auth::Authenticator;

/// An agent's relay.
#[derive(Clone)]
pub(crate) struct Relay {
    pub controller: Address,
    pub identity: Authenticator,
    /// This host's name.
    pub host: String,
}

impl Relay {
    /// Serves one connection of a process on this host until it ends.
    pub fn serve(&self, near: Arc<Stream>, permit: ConnectionPermit) {
        let mut near = IncomingConnection::new(near);
        let ((far_sender, far_receiver), welcome) = match self.connect(&mut near, &permit) {
            Ok(connected) => connected,
            Err(error) => return near.refuse(&error.to_string()),
        };
        if near.welcome(welcome).is_err() {
            return;
        }
        let (from, to) = (far_receiver, near.sender);
        let down = std::thread::Builder::new()
            .name("forebay-relay".into())
            .spawn(move || relay_messages(from, to, MAX_MESSAGE_BYTES));
        if let Ok(down) = down {
            relay_messages(near.receiver, far_sender, MAX_REQUEST_BYTES);
            let _ = down.join();
        }
    }

    fn connect(
        &self,
        near: &mut IncomingConnection,
        permit: &ConnectionPermit,
    ) -> io::Result<((ControlSender, ControlReceiver), Welcome)> {
        let refused = |reason: String| io::Error::new(io::ErrorKind::PermissionDenied, reason);
        let caller = near.authenticate(&self.identity, permit)?;
        let own = Owner { uid: caller.peer.uid, gid: caller.peer.gid };
        let admitted = permit.admit(Principal::from(&caller.peer));
        admitted.map_err(|reason| refused(reason.to_string()))?;
        let owner = match caller.role {
            Role::Client(None) => own,
            Role::Client(Some(owner)) if owner == own || caller.peer.trusted => owner,
            Role::Client(Some(_)) | Role::Storage(_) | Role::Agent(_) => {
                let reason = "an agent relays only its host's users' own requests";
                return Err(refused(reason.to_owned()));
            }
        };
        let role = Role::Client(Some(owner));
        let (sender, receiver, mut welcome) =
            control_channel::connect(&self.controller, role, &self.identity).map_err(|error| {
                let controller = &self.controller;
                io::Error::new(error.kind(), format!("controller {controller}: {error}"))
            })?;
        welcome.host = Some(self.host.clone());
        Ok(((sender, receiver), welcome))
    }
}

/// Relays messages until either side ends, and then ends the other.
fn relay_messages(mut from: ControlReceiver, mut to: ControlSender, max_bytes: usize) {
    while let Ok(body) = from.receive_body(max_bytes) {
        if to.forward(body).is_err() {
            break;
        }
    }
    from.stream().shut_down();
    to.stream().shut_down();
}
