//! Who may come in, as what, and from where.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use forebay_net::stream::Stream;

use super::steps::{CLIENT_OUTBOX, Connection, OUTBOX, Server};
use super::{Admitted, ConnId, Entry};
use crate::hosts::greet;
use crate::hosts::messages::{Role, Welcome};
use forebay_control::messages::{Owner, Peer};

/// As what someone comes in.
struct Introduced {
    /// The storage node or agent that it is.
    peer: Option<Peer>,
    /// For whom it asks.
    owner: Owner,
    welcome: Welcome,
}

impl Server {
    /// Whether someone may come in, and as what.
    pub(super) fn admit(&mut self, stream: Arc<Stream>, caller: &greet::Caller) -> Entry {
        let Introduced {
            peer,
            owner,
            welcome,
        } = self.introduced(caller)?;
        self.next += 1;
        let id = ConnId(self.next);
        let most = match peer {
            Some(_) => OUTBOX,
            None => CLIENT_OUTBOX,
        };
        let (outbox, messages) = sync_channel(most);
        if let Some(peer) = &peer {
            self.is_there_elsewhere(peer, caller)?;
            tracing::info!(?peer, from = ?caller.from, "connected");
            if let Some(old) = self.peers.insert(peer.clone(), id) {
                self.forget(old);
            }
        }
        let connection = Connection {
            stream,
            from: caller.from,
            outbox,
            peer,
            caller: owner,
            asked: 0,
            told: Arc::default(),
        };
        let admitted = Admitted {
            id,
            welcome,
            outbox: messages,
            long: connection.told.clone(),
        };
        self.connections.insert(id, connection);
        Ok(admitted)
    }

    /// What someone may be who says what they are.
    fn introduced(&self, caller: &greet::Caller) -> Result<Introduced, String> {
        let uid = caller.peer.uid;
        let trusted = |what: &str| match caller.peer.trusted {
            true => Ok(()),
            false => Err(format!("user {uid} may not {what}: only root may")),
        };
        let own = Owner {
            uid,
            gid: caller.peer.gid,
        };
        let mut welcome = Welcome {
            pool: self.pool.clone(),
            node: None,
            granules: 0,
            host: None,
            proof: None,
        };
        let (peer, owner) = match &caller.role {
            Role::Storage(name) => {
                trusted("be a storage node")?;
                let mut nodes = self.controller.state().storage.nodes();
                let known = nodes.find(|(_, node)| node.name == *name);
                let (number, node) = known.ok_or_else(|| {
                    format!(
                        "there is no storage node `{name}` in the controller's configuration; \
                         add it there and start the controller again"
                    )
                })?;
                self.comes_from(name, caller)?;
                welcome.node = Some(number);
                welcome.granules = node.granules;
                (Some(Peer::StorageNode(number)), own)
            }
            Role::Agent(host) => {
                trusted("be a compute node's agent")?;
                (Some(Peer::ComputeNode(host.clone())), own)
            }
            Role::Client(None) => (None, own),
            Role::Client(Some(owner)) => {
                if *owner != own {
                    trusted("ask for others")?;
                }
                (None, *owner)
            }
        };
        Ok(Introduced {
            peer,
            owner,
            welcome,
        })
    }

    /// Whether a storage node speaks from where the configuration says that it is: root of another
    /// host, though trusted, gets none of its data that way.
    fn comes_from(&self, name: &str, caller: &greet::Caller) -> Result<(), String> {
        // On a Unix socket it is root of the controller's own host.
        let (Some(from), Some(may)) = (caller.from, self.froms.get(name)) else {
            return Ok(());
        };
        may.check(from, caller.origin).map_err(|wrong| {
            format!(
                "storage node `{name}` may connect from {may}, but this is {wrong}; if that is \
                 its host, name the address in `from` of its [[storage]] entry in the \
                 controller's configuration"
            )
        })
    }

    /// Fails if the same storage node or agent is connected from another host.
    fn is_there_elsewhere(&self, peer: &Peer, caller: &greet::Caller) -> Result<(), String> {
        let there = self.peers.get(peer).and_then(|id| self.connections.get(id));
        match there.map(|connection| connection.from) {
            Some(Some(there)) if caller.from.is_some_and(|from| from != there) => {
                let who = match peer {
                    Peer::StorageNode(node) => format!("storage node {}", node.0),
                    Peer::ComputeNode(host) => format!("the agent of `{host}`"),
                };
                Err(format!(
                    "{who} is connected already, from {there}; hosts must have names of their own"
                ))
            }
            _ => Ok(()),
        }
    }
}
