//! Attached clients: identity, slots and idempotency, connections, leases.

use super::Traffic;
use crate::driver::ConnId;
use crate::state::{SessionState, SlotResult, SlotUpdate};
use forebay_protocol::message::{
    ClientHost, DELEGATION_SLOT, Delegated, NameRequest, connection_slot,
};
use forebay_protocol::{Errno, InstanceId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// A client's session: its durable part, and what is known of its connections.
#[derive(Debug)]
pub struct Session {
    /// The durable part.
    pub state: SessionState,
    /// Whether it has, or had, connections over which descriptors are passed.
    pub has_descriptors: bool,
    /// Whether it has, or had, others, and uses data connections.
    pub uses_data_connections: bool,
    /// Whether its user is trusted, as far as it has attached since the start.
    pub is_trusted: bool,
    /// Open handles.
    pub handle_count: usize,
    /// Whether the client caches names and attributes.
    pub caches: bool,
    /// Whether the cache lets users follow only names in directories that they may search.
    pub cache_checks_permissions: bool,
    /// Its host, once a connection has attached since the start.
    pub client: ClientHost,
    /// The number of its client, once a connection has attached since the start; 0: the client has an earlier
    /// release.
    pub client_number: Option<u64>,
    /// Time at which it began; `None` if that was before the start of the daemon.
    pub began_ns: Option<u64>,
    /// Arrival of its last call, other than by which it waits for events; at first the time of its
    /// beginning, or of the daemon's start.
    pub last_call_ns: u64,
    /// Contents read and written over its data connections, each of which refers to this.
    pub traffic: Arc<Traffic>,
    /// Connection and highest call number of each slot.
    slots: BTreeMap<u32, (Option<ConnId>, u64)>,
    /// Time at which the last connection was closed.
    idle_since_ns: Option<u64>,
}

impl Session {
    fn new(state: SessionState, now_ns: u64, is_restored: bool) -> Session {
        Session {
            state,
            has_descriptors: false,
            uses_data_connections: false,
            is_trusted: false,
            handle_count: 0,
            caches: false,
            cache_checks_permissions: false,
            client: ClientHost::default(),
            client_number: None,
            began_ns: (!is_restored).then_some(now_ns),
            last_call_ns: now_ns,
            traffic: Arc::default(),
            slots: BTreeMap::new(),
            idle_since_ns: is_restored.then_some(now_ns),
        }
    }

    /// The session has a connection: its lease is renewed.
    pub fn renew_lease(&mut self) {
        self.idle_since_ns = None;
    }

    /// A connection takes a slot. `seq` is the number of its first call. Returns the connection that
    /// had the slot before; nothing that arrives on it may be carried out any more.
    pub fn take_slot(&mut self, slot: u32, conn: ConnId, seq: u64) -> Option<ConnId> {
        let (current, last) = self.slots.entry(slot).or_default();
        *last = (*last).max(seq.saturating_sub(1));
        current.replace(conn).filter(|old| *old != conn)
    }

    /// A connection that had a slot is closed.
    pub fn release_slot(&mut self, slot: u32, conn: ConnId, now_ns: u64) {
        if let Some((current, _)) = self.slots.get_mut(&slot)
            && *current == Some(conn)
        {
            *current = None;
        }
        if self.slots.values().all(|(conn, _)| conn.is_none()) {
            self.idle_since_ns = Some(now_ns);
        }
    }

    /// All connections are closed. Returns them.
    pub fn release_all_slots(&mut self, now_ns: u64) -> Vec<ConnId> {
        let closed = self.slots.values_mut().filter_map(|(conn, _)| conn.take()).collect();
        self.idle_since_ns.get_or_insert(now_ns);
        closed
    }

    /// Note the number of a slot's call. `ESTALE`: it comes after a later one. The requests of a batch have
    /// the number of the batch.
    pub fn check_order(&mut self, slot: u32, seq: u64) -> Result<(), Errno> {
        let (_, last) = self.slots.entry(connection_slot(slot)).or_default();
        if seq < *last {
            return Err(Errno::ESTALE);
        }
        *last = seq;
        Ok(())
    }

    /// The result of a call, if it is the last change that was made through its slot.
    pub fn completed(&self, slot: u32, seq: u64) -> Option<SlotResult> {
        let (done, result) = self.state.slots.get(&slot)?;
        (*done == seq).then_some(*result)
    }

    /// The number of the session's delegation; `None` if it gets none.
    pub fn delegation(&self) -> Option<u64> {
        self.state.delegation().filter(|_| self.caches && self.cache_checks_permissions)
    }

    /// Whether a change is carried out that the client has reported as made. `EKEYREVOKED`: another session
    /// may have attached since.
    pub fn check_delegation(&self, delegated: &Delegated) -> Result<(), Errno> {
        if self.state.delegation().is_none() || !self.is_trusted {
            return Err(Errno::EACCES);
        }
        match &delegated.request {
            NameRequest::Unlink { .. }
            | NameRequest::Create { .. }
            | NameRequest::CreateUnnamed { .. } => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
        let is_current = self.state.delegation() == Some(delegated.number);
        if is_current { Ok(()) } else { Err(Errno::EKEYREVOKED) }
    }

    /// The connections of all slots.
    pub fn connections(&self) -> impl Iterator<Item = ConnId> {
        self.slots.values().filter_map(|(conn, _)| *conn)
    }
}

#[derive(Debug)]
pub struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// Open handles of each user.
    user_handles: BTreeMap<u32, usize>,
    /// Sessions begun so far.
    begun: u64,
    /// Sessions from before this start that may not have opened their handles again.
    returning: BTreeSet<SessionId>,
}

impl Sessions {
    /// The sessions of a node that starts, none of which has a connection.
    pub fn restore(
        recovered: BTreeMap<SessionId, SessionState>,
        begun: u64,
        now_ns: u64,
    ) -> Sessions {
        debug_assert!(recovered.keys().all(|id| id.0 <= begun), "sessions are counted");
        let attached = recovered.iter().filter(|(_, state)| state.instance.is_some());
        Sessions {
            returning: attached.map(|(id, _)| *id).collect(),
            sessions: recovered
                .into_iter()
                .map(|(id, state)| (id, Session::new(state, now_ns, true)))
                .collect(),
            user_handles: BTreeMap::new(),
            begun,
        }
    }

    /// The number of the next session.
    pub fn next_id(&self) -> SessionId {
        SessionId(self.begun + 1)
    }

    /// Add a session that begins.
    pub fn insert(&mut self, id: SessionId, state: SessionState, now_ns: u64) {
        assert_eq!(id, self.next_id(), "session numbers are consecutive");
        self.begun = id.0;
        self.sessions.insert(id, Session::new(state, now_ns, false));
    }

    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.returning.remove(&id);
        let session = self.sessions.remove(&id)?;
        self.release_handles(session.state.uid, session.handle_count);
        Some(session)
    }

    /// A session, or `ESTALE`.
    pub fn get(&self, id: SessionId) -> Result<&Session, Errno> {
        self.sessions.get(&id).ok_or(Errno::ESTALE)
    }

    /// A session, or `ESTALE`.
    pub fn get_mut(&mut self, id: SessionId) -> Result<&mut Session, Errno> {
        self.sessions.get_mut(&id).ok_or(Errno::ESTALE)
    }

    /// Counts a handle that a session opens.
    pub fn add_handle(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.handle_count += 1;
        *self.user_handles.entry(session.state.uid).or_default() += 1;
    }

    /// Counts a handle that a session closes. The handles of a session that is over are not counted.
    pub fn remove_handle(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            assert!(session.handle_count > 0, "a handle is closed once");
            session.handle_count -= 1;
            let uid = session.state.uid;
            self.release_handles(uid, 1);
        }
    }

    fn release_handles(&mut self, uid: u32, count: usize) {
        if count == 0 {
            return;
        }
        let of_user = self.user_handles.entry(uid).or_default();
        assert!(*of_user >= count, "handles are counted for their user");
        *of_user -= count;
        if *of_user == 0 {
            self.user_handles.remove(&uid);
        }
    }

    /// `EMFILE` if the user of a session has `max` handles in all sessions, and is not trusted.
    pub fn check_user_handles(&self, id: SessionId, max: usize) -> Result<(), Errno> {
        let session = self.get(id)?;
        let count = self.user_handles.get(&session.state.uid).copied().unwrap_or(0);
        if !session.is_trusted && count >= max { Err(Errno::EMFILE) } else { Ok(()) }
    }

    /// The sessions with numbers above `after`, in order.
    pub fn after(&self, after: SessionId) -> impl Iterator<Item = (SessionId, &Session)> {
        let later = self.sessions.range((Bound::Excluded(after), Bound::Unbounded));
        later.map(|(id, session)| (*id, session))
    }

    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Sessions begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// The sessions that are attached to an instance.
    pub fn attached_to(&self, instance: InstanceId) -> Vec<SessionId> {
        let attached = self.iter();
        let attached = attached.filter(|(_, session)| session.state.instance == Some(instance));
        attached.map(|(id, _)| id).collect()
    }

    /// Remember the result of a call for its slot, in case the call is repeated.
    pub fn record_result(&mut self, update: &SlotUpdate) {
        if let Some(session) = self.sessions.get_mut(&update.session) {
            let done = (update.seq, update.result);
            session.state.slots.insert(update.slot, done);
        }
    }

    /// The record that the delegation of a session is revoked, if the session exists.
    pub fn revoked_delegation(&self, session: SessionId) -> Option<SlotUpdate> {
        let number = self.get(session).ok()?.state.delegation()?;
        let (slot, seq) = (DELEGATION_SLOT, number + 1);
        Some(SlotUpdate { session, slot, seq, result: SlotResult::Done })
    }

    /// Sessions without a connection since before `deadline_ns`.
    pub fn expired(&self, deadline_ns: u64) -> Vec<SessionId> {
        let idle = self.iter();
        let expired = idle
            .filter(|(_, session)| session.idle_since_ns.is_some_and(|since| since < deadline_ns));
        expired.map(|(id, _)| id).collect()
    }

    /// Whether any session has no connection.
    pub fn has_idle(&self) -> bool {
        let mut sessions = self.sessions.values();
        sessions.any(|session| session.idle_since_ns.is_some())
    }

    /// Whether a session is from before this start and has not finished opening its handles again.
    pub fn is_returning(&self, id: SessionId) -> bool {
        self.returning.contains(&id)
    }

    /// A session has opened its handles again: it makes other requests. Returns whether this is the first
    /// one.
    pub fn has_returned(&mut self, id: SessionId) -> bool {
        self.returning.remove(&id)
    }

    /// Whether sessions of an instance from before this start may still open their handles again.
    pub fn any_returning_to(&self, instance: InstanceId) -> bool {
        self.returning.iter().any(|id| {
            let session = self.sessions.get(id);
            session.is_some_and(|session| session.state.instance == Some(instance))
        })
    }
}
