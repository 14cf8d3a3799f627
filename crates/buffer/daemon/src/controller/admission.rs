//! Authorization of connections: which roles an authenticated process may take.

use std::collections::BTreeMap;

use forebay_control::controller::State;
use forebay_control::messages::{Owner, Peer};

use super::port::Candidate;
use crate::config::AllowedSources;
use crate::messages::{Role, Welcome};

/// Data with which the driver authorizes a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Policy {
    /// The pool's id, which storage nodes compare with the one they know.
    pub pool_id: String,
    /// Addresses from which each storage node may connect.
    pub allowed_sources: BTreeMap<String, AllowedSources>,
    /// The hosts from which root and the operator may administer; `None`: all.
    pub administrators: Option<AllowedSources>,
    /// The user with the rights of root.
    pub operator: u32,
    /// The only user besides root who may connect, if the pool is one user's own.
    pub only_user: Option<u32>,
}

/// An authorized connection.
pub(super) struct Authorized {
    /// The storage node or compute node at the other end.
    pub peer: Option<Peer>,
    /// The user whose requests come over it.
    pub caller: Owner,
    pub welcome: Welcome,
}

impl Policy {
    /// Authorizes a connection, or returns the reason for refusing it.
    pub fn authorize(&self, candidate: &Candidate, state: &State) -> Result<Authorized, String> {
        let Candidate { uid, gid, .. } = *candidate;
        if let Some(user) = self.only_user
            && uid != user
            && uid != 0
        {
            return Err(format!("the pool belongs to user {user}, not to user {uid}"));
        }
        let require_trust = |action: &str| match candidate.trusted {
            true => Ok(()),
            false => Err(format!("user {uid} may not {action}: only root may")),
        };
        let own = Owner { uid, gid };
        let mut welcome = Welcome {
            pool: self.pool_id.clone(),
            node: None,
            granules: 0,
            host: None,
            version: None,
        };
        let (peer, caller) = match &candidate.role {
            Role::Storage(name) => {
                require_trust("connect as a storage node")?;
                let known = state.storage.nodes().find(|(_, node)| node.name == *name);
                let (id, node) = known.ok_or_else(|| {
                    format!(
                        "there is no storage node `{name}` in the controller's configuration; \
                         add it there and reload the controller"
                    )
                })?;
                self.check_source(name, candidate)?;
                welcome.node = Some(id);
                welcome.granules = node.granules;
                (Some(Peer::StorageNode(id)), own)
            }
            Role::Agent(host) => {
                require_trust("connect as a compute node's agent")?;
                (Some(Peer::ComputeNode(host.clone())), own)
            }
            Role::Client(None) => {
                self.check_administrator(own, candidate)?;
                (None, own)
            }
            Role::Client(Some(owner)) => {
                if *owner != own {
                    require_trust("make requests for other users")?;
                }
                self.check_administrator(*owner, candidate)?;
                (None, *owner)
            }
        };
        Ok(Authorized { peer, caller, welcome })
    }

    /// Checks that an operator's requests come from an administrator's host: root of a compute node is
    /// the operator of that node only.
    fn check_administrator(&self, owner: Owner, candidate: &Candidate) -> Result<(), String> {
        let is_operator = owner.uid == 0 || owner.uid == self.operator;
        let (true, Some(source), Some(hosts)) =
            (is_operator, candidate.source, &self.administrators)
        else {
            return Ok(());
        };
        hosts.check(source, candidate.munge_origin).map_err(|found| {
            format!(
                "user {} may use this pool from {hosts}, but this is {found}; \
                 `controller.administrators` in the controller's configuration names the hosts",
                owner.uid
            )
        })
    }

    /// Checks that a storage node connects from a configured address. Without this check root of
    /// any trusted host could impersonate the node and be sent its data.
    fn check_source(&self, name: &str, candidate: &Candidate) -> Result<(), String> {
        // On a Unix socket it is root of the controller's own host.
        let (Some(source), Some(allowed)) = (candidate.source, self.allowed_sources.get(name))
        else {
            return Ok(());
        };
        allowed.check(source, candidate.munge_origin).map_err(|found| {
            format!(
                "storage node `{name}` may connect from {allowed}, but this is {found}; if \
                     that is its host, name the address in `from` of its [[storage]] entry in the \
                     controller's configuration"
            )
        })
    }
}
