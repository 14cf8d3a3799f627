//! Fences of compute nodes: mounts that the pool's controller no longer counts on are refused.
//!
//! Fences are not durable here: the driver provides those of its own records at the start, before any
//! client is served.

use super::Node;
use crate::driver::Effect;
use crate::objects::Objects;
use forebay_protocol::message::{
    ALL_HOSTS, ClientHost, HostFence, MAX_FENCED_HOSTS, MAX_HOST_NAME,
};
use forebay_protocol::{Errno, InstanceId, SessionId};
use std::collections::BTreeMap;

/// The first accepted generation of each fenced host's mounts, by instance.
#[derive(Debug, Default)]
pub(super) struct HostFences(BTreeMap<InstanceId, BTreeMap<String, u64>>);

impl HostFences {
    /// Whether a client is a mount of a fenced host. Movers are none.
    pub fn refuses(&self, instance: InstanceId, client: &ClientHost) -> bool {
        let Some((hosts, generation)) = self.0.get(&instance).zip(client.mount) else {
            return false;
        };
        let is_later = |host: &str| hosts.get(host).is_some_and(|first| generation < *first);
        is_later(&client.host) || is_later(ALL_HOSTS)
    }

    /// Add fences; none is ever lowered. `ENFILE`: there would be too many.
    pub fn raise(&mut self, instance: InstanceId, hosts: &[HostFence]) -> Result<(), Errno> {
        let fenced = self.0.entry(instance).or_default();
        for HostFence { host, generation } in hosts {
            if host.len() > MAX_HOST_NAME {
                return Err(Errno::EINVAL);
            }
            if fenced.len() >= MAX_FENCED_HOSTS && !fenced.contains_key(host) {
                return Err(Errno::ENFILE);
            }
            let first = fenced.entry(host.clone()).or_default();
            *first = (*first).max(*generation);
        }
        Ok(())
    }

    /// An instance was removed.
    pub fn remove(&mut self, instance: InstanceId) {
        self.0.remove(&instance);
    }
}

impl<O: Objects + Clone> Node<O> {
    /// Restore the fences of an instance at the start. They have been accepted before.
    pub fn restore_fences(&mut self, id: InstanceId, hosts: &[HostFence]) -> Result<(), Errno> {
        self.host_fences.raise(id, hosts)
    }

    /// Whether requests of a mount are refused, as its host is fenced.
    pub fn refuses_mount(&self, id: InstanceId, client: &ClientHost) -> bool {
        self.host_fences.refuses(id, client)
    }

    /// Refuse mounts of hosts. After the effects that this adds, no request of theirs is carried out.
    pub(super) fn fence_hosts(&mut self, id: InstanceId, hosts: &[HostFence]) -> Result<(), Errno> {
        self.volumes.get(&id).ok_or(Errno::ENOENT)?;
        self.host_fences.raise(id, hosts)?;
        for session in self.context.sessions.attached_to(id) {
            let client = &self.context.sessions.get(session)?.client;
            if self.host_fences.refuses(id, client) {
                tracing::warn!(
                    session = session.0,
                    instance = id.0,
                    host = client.host,
                    "the host is presumed dead, or the instance moves to other nodes: requests of \
                     this mount are refused"
                );
                self.revoke_session(id, session);
            }
        }
        Ok(())
    }

    /// Close a session's connections and its handles for data connections. The session itself ends
    /// when its lease has expired: if it ended now, lengths of files would be settled while other
    /// nodes may still accept writes of the same client.
    pub(super) fn revoke_session(&mut self, instance: InstanceId, id: SessionId) {
        let now_ns = self.context.now.steady_ns;
        let Ok(session) = self.context.sessions.get_mut(id) else {
            return;
        };
        let closed = session.release_all_slots(now_ns);
        for conn in &closed {
            self.context.effects.push(Effect::Disconnect(*conn));
            self.connections.remove(*conn);
        }
        self.context.parked.take_if(|parked| closed.contains(&parked.conn));
        let Some(volume) = self.volumes.get_mut(&instance) else {
            return;
        };
        for conn in &closed {
            volume.connection_closed(id, *conn);
        }
        volume.close_data_handles(&mut self.context, id);
        volume.end_delegation(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_of_all_hosts_refuses_every_earlier_mount_and_no_mover() {
        let instance = InstanceId(3);
        let mut fences = HostFences::default();
        let fence = |host: &str, generation| HostFence { host: host.to_owned(), generation };
        let client = |host: &str, mount| ClientHost { host: host.to_owned(), mount };
        fences.raise(instance, &[fence("nid1", 9), fence(ALL_HOSTS, 5)]).unwrap();
        assert!(fences.refuses(instance, &client("nid0", Some(4))));
        assert!(!fences.refuses(instance, &client("nid0", Some(5))));
        assert!(fences.refuses(instance, &client("nid1", Some(8))));
        assert!(!fences.refuses(instance, &client("nid1", Some(9))));
        assert!(!fences.refuses(instance, &client("bb0", None)));
        assert!(!fences.refuses(InstanceId(4), &client("nid0", Some(0))));
    }
}
