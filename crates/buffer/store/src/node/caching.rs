//! Who may cache what it is told.
//!
//! A client that is alone with its instance may keep names and attributes for [`CACHE_TIME`]. When
//! a second one wants to attach, replies stop permitting that, and the newcomer is told to try
//! again (`EAGAIN`) until all that was cached has expired. So nobody ever sees a stale name or
//! attribute, and no client has to be called back.
//!
//! Where an instance lies on several nodes, all clients attach to node 0 before they ask anything of
//! any node, and what another node permits to be cached is believed only as long as node 0 has said
//! so, too: it may be changed through yet another node.

use super::{ConnId, Shard};
use crate::objects::Objects;
use forebay_protocol::message::CACHE_LIFETIME_NS;
use forebay_protocol::message::NameRequest;
use forebay_protocol::{Call, Errno, InstanceId, Request};

/// For a kernel that is slow to note the time at which it was told something.
const MARGIN: u64 = 200_000_000;
/// How long a newcomer may take to try again.
const RETRY: u64 = 5_000_000_000;

impl<O: Objects> Shard<O> {
    /// After a start: what sessions there are, and that they may be caching.
    pub(super) fn adopt_sessions(&mut self) {
        let attached = self
            .state
            .sessions
            .iter()
            .filter_map(|(id, s)| Some((*id, s.instance?)));
        let attached: Vec<_> = attached.collect();
        let until = self
            .now
            .steady_ns
            .saturating_add(CACHE_LIFETIME_NS + MARGIN);
        for (session, instance) in attached {
            let runtime = self.runtime(instance);
            runtime.sessions.insert(session);
            runtime.cached_until = until;
        }
    }

    /// The instance whose names and attributes the client on this connection may cache now.
    fn cached_instance(&self, conn: ConnId) -> Option<InstanceId> {
        let (session, _) = self.conns.get(&conn)?.session?;
        if !self.attached.get(&session)?.caches {
            return None;
        }
        let instance = self.state.sessions.get(&session)?.instance?;
        let runtime = self.runtime.get(&instance)?;
        let alone = runtime.sessions.len() == 1 && self.now.steady_ns >= runtime.uncached_until;
        alone.then_some(instance)
    }

    /// May what is said on this connection now be cached?
    pub(super) fn may_cache(&mut self, conn: ConnId) -> bool {
        let Some(instance) = self.cached_instance(conn) else {
            return false;
        };
        let until = self
            .now
            .steady_ns
            .saturating_add(CACHE_LIFETIME_NS + MARGIN);
        self.runtime(instance).cached_until = until;
        true
    }

    /// May what is answered to a call be kept for other users, too? One that asks with the rights of
    /// several users gives a name that it keeps to all of them without asking again: only where
    /// everybody may look up names can it do so.
    pub(super) fn is_for_all(&self, conn: ConnId, call: &Call) -> bool {
        if call.caller.as_ref().is_none_or(|caller| caller.checked) {
            return true;
        }
        let dir = match &call.request {
            Request::Name(NameRequest::Lookup { parent, .. })
            | Request::Name(NameRequest::Mknod { parent, .. })
            | Request::Name(NameRequest::Create { parent, .. })
            | Request::Name(NameRequest::PutFile { parent, .. })
            | Request::Name(NameRequest::Link { parent, .. }) => *parent,
            Request::Name(NameRequest::ReadDir { ino, .. }) => *ino,
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(
                NameRequest::ReadLink { .. }
                | NameRequest::Unlink { .. }
                | NameRequest::RmDir { .. }
                | NameRequest::Rename { .. },
            )
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_) => return true,
        };
        let names = self
            .cached_instance(conn)
            .and_then(|instance| self.names(instance).ok());
        let dir = names.and_then(|instance| instance.names.get(dir));
        dir.is_some_and(|dir| dir.mode & 0o111 == 0o111)
    }

    /// Another client wants to attach: `EAGAIN` until nothing is cached any more.
    pub(super) fn end_caching(&mut self, instance: InstanceId) -> Result<(), Errno> {
        // Of several nodes, node 0 has seen to that.
        if self
            .names(instance)
            .is_ok_and(|i| i.spec.placement.node.0 > 0)
        {
            return Ok(());
        }
        let now = self.now.steady_ns;
        let runtime = self.runtime(instance);
        if runtime.sessions.is_empty() || now >= runtime.cached_until {
            return Ok(());
        }
        runtime.uncached_until = now.saturating_add(RETRY);
        Err(Errno::EAGAIN)
    }
}
