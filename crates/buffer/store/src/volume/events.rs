//! Events that sessions wait for: grants of file locks, and recalls of leases on files and on names.
//!
//! An event is kept until the client confirms that it has processed it, because the reply that reports
//! it may be lost.

use super::Volume;
use crate::context::{Context, Handled, Outcome, Requester};
use crate::driver::ConnId;
use crate::objects::Objects;
use forebay_protocol::message::{CacheRecall, EVENT_SLOT};
use forebay_protocol::{Errno, HandleId, Ino, LeaseId, Reply, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// The call of a session that waits for events.
type Watch = (ConnId, u64);

/// Events of a session that it has not confirmed.
#[derive(Debug, Default)]
struct SessionEvents {
    /// Tickets of locks that it waited for and holds now.
    granted: BTreeSet<u64>,
    /// Leases that it is to give back.
    recalled: BTreeMap<(Ino, HandleId), LeaseId>,
    /// The client drops what it caches when the lease on names and attributes is recalled.
    obeys_cache_recalls: bool,
    /// The recall of that lease.
    recalled_cache: Option<LeaseId>,
    watch: Option<Watch>,
}

/// The events of a volume's sessions.
#[derive(Debug, Default)]
pub struct Events {
    sessions: BTreeMap<SessionId, SessionEvents>,
}

impl Events {
    /// A session is over. Returns its call that waits for events.
    fn detach(&mut self, session: SessionId) -> Option<Watch> {
        self.sessions.remove(&session)?.watch
    }

    /// A connection of a session is closed.
    pub fn drop_watch(&mut self, session: SessionId, conn: ConnId) {
        if let Some(events) = self.sessions.get_mut(&session) {
            events.watch.take_if(|(watch, _)| *watch == conn);
        }
    }

    /// Whether a session has been granted a lock, and has not confirmed that it knows.
    pub fn is_granted(&self, session: SessionId, ticket: u64) -> bool {
        let events = self.sessions.get(&session);
        events.is_some_and(|events| events.granted.contains(&ticket))
    }

    /// The number of granted locks that a session has not confirmed.
    pub fn unconfirmed_grants(&self, session: SessionId) -> usize {
        self.sessions.get(&session).map_or(0, |events| events.granted.len())
    }

    /// A lock that a session waited for is granted.
    pub fn add_grant(&mut self, session: SessionId, ticket: u64) {
        self.sessions.entry(session).or_default().granted.insert(ticket);
    }

    /// A lease of a session is recalled.
    pub fn add_recall(&mut self, session: SessionId, leased: (Ino, HandleId), id: LeaseId) {
        self.sessions.entry(session).or_default().recalled.insert(leased, id);
    }

    /// A session from before this start obeyed recalls of its lease on names and attributes.
    pub fn restore_obedience(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default().obeys_cache_recalls = true;
    }

    /// The lease of a session on names and attributes is recalled.
    pub fn add_cache_recall(&mut self, session: SessionId, id: LeaseId) {
        let events = self.sessions.entry(session).or_default();
        if events.obeys_cache_recalls {
            events.recalled_cache = Some(id);
        }
    }

    /// Whether a recall of a session's lease on names and attributes would reach its client at once.
    pub fn is_recallable(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|events| {
            events.obeys_cache_recalls && events.watch.is_some() && events.recalled_cache.is_none()
        })
    }

    /// A handle is closed: its lease need not be given back.
    pub fn remove_recall(&mut self, session: SessionId, leased: (Ino, HandleId)) {
        if let Some(events) = self.sessions.get_mut(&session) {
            events.recalled.remove(&leased);
        }
    }

    /// The events to report to a session, and its call that waits for them, if there are both.
    fn take_report(&mut self, session: SessionId) -> Option<(Watch, Reply)> {
        let events = self.sessions.get_mut(&session)?;
        let recalled_cache = events.recalled_cache;
        if events.granted.is_empty() && events.recalled.is_empty() && recalled_cache.is_none() {
            return None;
        }
        let watch = events.watch.take()?;
        let granted = events.granted.iter().copied().collect();
        let recalled = events.recalled.values().copied().collect();
        Some((watch, Reply::Events { granted, recalled, recalled_cache }))
    }
}

impl<O: Objects> Volume<O> {
    /// A session waits for events from now on, and confirms earlier ones.
    pub fn await_events(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (known, returned): (&[u64], &[LeaseId]),
        cache: CacheRecall,
    ) -> Handled<O> {
        let origin = &requester.origin;
        if origin.slot != EVENT_SLOT {
            return Err(Errno::EINVAL);
        }
        let events = self.events.sessions.entry(origin.session).or_default();
        for ticket in known {
            events.granted.remove(ticket);
        }
        events.watch = Some((origin.conn, origin.seq));
        events.obeys_cache_recalls = cache != CacheRecall::Ignored;
        let dropped = match cache {
            CacheRecall::Dropped(id) => events.recalled_cache.take_if(|recalled| *recalled == id),
            CacheRecall::Obeyed => None,
            CacheRecall::Ignored => {
                events.recalled_cache = None;
                None
            }
        };
        let returned: BTreeSet<&LeaseId> = returned.iter().collect();
        let recalled = std::mem::take(&mut events.recalled).into_iter();
        let (over, kept) = recalled.partition(|(_, id)| returned.contains(id));
        events.recalled = kept;
        let over: BTreeMap<(Ino, HandleId), LeaseId> = over;
        for ((ino, handle), id) in over {
            self.lease_returned(node, ino, (origin.session, handle), id);
        }
        if let Some(id) = dropped {
            self.cache_dropped(node, origin.session, id);
        }
        self.notify(node, origin.session);
        Ok(Outcome::Deferred)
    }

    /// Report events to a session, if it waits for them.
    pub fn notify(&mut self, node: &mut Context<O>, session: SessionId) {
        if let Some(((conn, seq), report)) = self.events.take_report(session) {
            node.reply(conn, seq, report);
        }
    }

    /// A session is over: its call that waits for events fails.
    pub fn end_events(&mut self, node: &mut Context<O>, session: SessionId) {
        if let Some((conn, seq)) = self.events.detach(session) {
            node.reply(conn, seq, Reply::Failed(Errno::ESTALE));
        }
    }
}
