//! Passing on: a process of this host speaks with the controller through its agent, which vouches
//! for the user that the kernel names.

use std::io;
use std::sync::Arc;

use forebay_wire::stream::{Address, Stream};

use super::config::Identity;
use super::greet;
use super::message::{Role, Welcome};
use super::server::hang_up;
use crate::protocol::Owner;

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
    pub fn serve(&self, near: Stream) {
        let (far, welcome, caller) = match self.connect(&near) {
            Ok(connected) => connected,
            Err(error) => return greet::refuse(&near, &error.to_string()),
        };
        if greet::welcome(&near, &self.identity, &caller, welcome).is_err() {
            return;
        }
        let (near, far) = (Arc::new(near), Arc::new(far));
        let (from, to) = (far.clone(), near.clone());
        let down = std::thread::Builder::new()
            .name("forebay-relay".into())
            .spawn(move || pass(&from, &to));
        if let Ok(down) = down {
            pass(&near, &far);
            let _ = down.join();
        }
    }

    fn connect(&self, near: &Stream) -> io::Result<(Stream, Welcome, greet::Caller)> {
        let caller = greet::answer(near, &self.identity)?;
        let own = Owner {
            uid: caller.peer.uid,
            gid: caller.peer.gid,
        };
        let owner = match caller.role {
            Role::Client(None) => own,
            Role::Client(Some(owner)) if owner == own || caller.peer.trusted => owner,
            _ => {
                let reason = "an agent passes on only what its host's users ask for themselves";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
            }
        };
        let role = Role::Client(Some(owner));
        let (far, mut welcome) =
            greet::dial(&self.controller, role, &self.identity).map_err(|error| {
                let controller = &self.controller;
                io::Error::new(error.kind(), format!("controller {controller}: {error}"))
            })?;
        welcome.host = Some(self.host.clone());
        welcome.proof = None;
        Ok((far, welcome, caller))
    }
}

/// Copies what comes until either side ends, and then ends the other.
fn pass(from: &Stream, to: &Stream) {
    let mut buffer = vec![0; 64 << 10];
    let mut descriptors = std::collections::VecDeque::new();
    loop {
        match from.receive(&mut buffer, &mut descriptors) {
            Ok(count) if count > 0 => {
                descriptors.clear();
                let sent = to.send_all(buffer.get(..count).unwrap_or_default(), &[], None);
                if sent.is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
    hang_up(from);
    hang_up(to);
}
