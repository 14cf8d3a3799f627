//! Sessions of clients, as administrators list and evict them.

use super::Node;
use crate::context::{Session, Traffic};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::objects::Objects;
use forebay_protocol::message::{MAX_LISTED_SESSIONS, SessionInfo, SessionToken};
use forebay_protocol::{Errno, InstanceId, SessionId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Evicted sessions that are remembered. Of more, the oldest are forgotten: a client of such a session
/// begins a new one.
const MAX_EVICTED: usize = 65_536;

/// The secrets of sessions that were evicted since the start, so that their clients are told.
#[derive(Debug, Default)]
pub(super) struct EvictedSessions(BTreeMap<SessionId, u128>);

impl EvictedSessions {
    /// Whether a token is that of an evicted session.
    pub fn contains(&self, token: SessionToken) -> bool {
        self.0.get(&token.session) == Some(&token.secret)
    }

    fn insert(&mut self, id: SessionId, secret: u128) {
        self.0.insert(id, secret);
        while self.0.len() > MAX_EVICTED {
            self.0.pop_first();
        }
    }
}

impl<O: Objects + Clone> Node<O> {
    /// The counters of a session's data connections.
    pub(crate) fn traffic(&self, id: SessionId) -> Option<Arc<Traffic>> {
        self.context.sessions.get(id).ok().map(|session| session.traffic.clone())
    }

    /// The sessions of clients with numbers above `after`, in order, as many as a reply holds.
    pub(super) fn list_sessions(&self, after: SessionId) -> Vec<SessionInfo> {
        let mut leases: BTreeMap<InstanceId, BTreeMap<SessionId, u64>> = BTreeMap::new();
        let sessions = self.context.sessions.after(after);
        let of_clients = sessions.filter_map(|(id, session)| {
            let instance = session.state.instance.filter(|_| !self.evicted.0.contains_key(&id))?;
            Some((id, instance, session))
        });
        of_clients
            .take(MAX_LISTED_SESSIONS)
            .map(|(id, instance, session)| {
                let volume = self.volumes.get(&instance);
                let leases = leases.entry(instance).or_insert_with(|| {
                    volume.map(|volume| volume.read_lease_counts()).unwrap_or_default()
                });
                SessionInfo {
                    read_leases: leases.get(&id).copied().unwrap_or(0),
                    has_locks: volume.is_some_and(|volume| volume.has_locks_of(id)),
                    ..session_info(id, instance, session, self.context.now.steady_ns)
                }
            })
            .collect()
    }

    /// End sessions. After the effects that this adds, no request of theirs is carried out.
    pub(super) fn evict_sessions(&mut self, sessions: &[SessionId]) -> Result<(), Errno> {
        if sessions.len() > MAX_LISTED_SESSIONS {
            return Err(Errno::EINVAL);
        }
        for id in sessions {
            let Ok(session) = self.context.sessions.get(*id) else {
                continue;
            };
            let Some(instance) = session.state.instance else {
                continue;
            };
            let (uid, host) = (session.state.uid, &session.client.host);
            tracing::warn!(
                session = id.0,
                %instance,
                uid,
                host,
                "session evicted by an administrator"
            );
            self.evicted.insert(*id, session.state.secret);
            self.context.effects.push(Effect::BulkEnd(*id));
            self.revoke_session(instance, *id);
            // On several nodes others may still accept writes of the same client.
            let striped = self.volumes.get(&instance).is_some_and(|volume| volume.is_striped());
            if !striped && self.context.log_space > LogSpace::Exhausted {
                self.end_session(*id);
            }
        }
        Ok(())
    }
}

/// The part of a session's description that its volume does not know.
fn session_info(
    id: SessionId,
    instance: InstanceId,
    session: &Session,
    now_ns: u64,
) -> SessionInfo {
    let last_ns = session.last_call_ns.max(session.traffic.last_ns());
    // One reference is the session's own.
    let data_connections = Arc::strong_count(&session.traffic).saturating_sub(1);
    SessionInfo {
        id,
        instance,
        uid: session.state.uid,
        client: session.client.clone(),
        age_ns: session.began_ns.map(|began_ns| now_ns.saturating_sub(began_ns)),
        idle_ns: now_ns.saturating_sub(last_ns),
        connections: session.connections().count() as u32,
        data_connections: data_connections as u32,
        handles: session.handle_count as u64,
        read: session.traffic.read(),
        written: session.traffic.written(),
        ..SessionInfo::default()
    }
}
