//! Requests of administrators: instances come, change and go.

use super::{ConnId, Doomed, Effect, Event, Runtime, Shard, SlotResult};
use crate::objects::Objects;
use forebay_protocol::identity::PeerIdentity;
use forebay_protocol::message::AdminRequest;
use forebay_protocol::message::{InstanceSpec, InstanceUsage};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, InstanceId, Reply, SessionId};
use std::collections::BTreeMap;

impl<O: Objects> Shard<O> {
    pub(super) fn administer(
        &mut self,
        conn: ConnId,
        (session, slot, seq): (SessionId, u32, u64),
        peer: &PeerIdentity,
        request: AdminRequest,
    ) -> Result<Option<Reply>, Errno> {
        if !peer.trusted {
            return Err(Errno::EACCES);
        }
        if let AdminRequest::ListInstances = request {
            return Ok(Some(Reply::Instances(self.instance_usage())));
        }
        self.need_room(self.room_to_administer(&request))?;
        let event = match request {
            AdminRequest::CreateInstance(spec) => self.plan_instance(spec)?,
            AdminRequest::ResizeInstance { id, capacity } => {
                self.names(id).map_err(|_| Errno::ENOENT)?;
                if capacity < self.runtime(id).space.used() {
                    return Err(Errno::EBUSY);
                }
                Event::Resize(id, capacity)
            }
            AdminRequest::SetPeers { id, peers } => {
                let place = &self.names(id).map_err(|_| Errno::ENOENT)?.spec.placement;
                let moved = Placement {
                    peers,
                    ..place.clone()
                };
                moved.validate()?;
                Event::SetPeers(id, moved.peers)
            }
            AdminRequest::RemoveInstance { id, force } => {
                self.names(id).map_err(|_| Errno::ENOENT)?;
                let sessions = self.sessions_of(id);
                if !force && !sessions.is_empty() {
                    return Err(Errno::EBUSY);
                }
                self.end_waiting(id);
                for session in sessions {
                    self.end_session(session);
                }
                self.runtime.remove(&id);
                self.doomed.push_back((self.last + 1, Doomed::Instance(id)));
                Event::DropInstance(id)
            }
            AdminRequest::ListInstances | AdminRequest::ScrubInstance { .. } => {
                return Err(Errno::EOPNOTSUPP);
            }
        };
        match &event {
            Event::AddInstance(spec, _) => tracing::info!(
                instance = spec.id.0,
                capacity = spec.capacity,
                uid = spec.uid,
                "an instance is made"
            ),
            Event::Resize(id, capacity) => {
                tracing::info!(
                    instance = id.0,
                    capacity,
                    "an instance has another capacity"
                );
            }
            Event::DropInstance(id) => tracing::info!(instance = id.0, "an instance is removed"),
            _ => {}
        }
        self.log(event, Some((session, slot, seq, SlotResult::Done)));
        self.when_durable(conn, seq);
        Ok(None)
    }

    /// Answer `Done` when the log is durable: whoever has instances made and removed keeps books of
    /// them, which a power cut must not put in the wrong.
    pub(super) fn when_durable(&mut self, conn: ConnId, seq: u64) {
        self.effects.push(Effect::Sync {
            conn,
            seq,
            object: None,
            data_only: false,
            fresh: false,
            put_count: 0,
        });
    }

    /// Have an instance's objects compared with their checksums; the driver answers.
    pub(super) fn scrub(
        &mut self,
        conn: ConnId,
        seq: u64,
        peer: &PeerIdentity,
        instance: InstanceId,
    ) -> Result<(), Errno> {
        if !peer.trusted {
            return Err(Errno::EACCES);
        }
        self.names(instance).map_err(|_| Errno::ENOENT)?;
        self.effects.push(Effect::Scrub {
            conn,
            seq,
            instance,
        });
        Ok(())
    }

    fn plan_instance(&mut self, spec: InstanceSpec) -> Result<Event, Errno> {
        if self.state.volumes.contains_key(&spec.id) {
            return Err(Errno::EEXIST);
        }
        if self.state.volumes.len() >= self.limits.max_instances {
            return Err(Errno::ENFILE);
        }
        if spec.inodes == 0 || spec.mode > 0o7777 {
            return Err(Errno::EINVAL);
        }
        spec.placement.validate()?;
        // The remains of one of the same name, which went moments ago, must not go with this one.
        let remains = self
            .doomed
            .iter()
            .any(|(_, d)| matches!(d, Doomed::Instance(id) if *id == spec.id));
        if remains {
            return Err(Errno::EBUSY);
        }
        self.objects.add_instance(spec.id)?;
        self.runtime.insert(spec.id, Runtime::default());
        self.spread |= spec.placement.is_distributed();
        Ok(Event::AddInstance(spec, self.now.wall))
    }

    fn sessions_of(&self, id: InstanceId) -> Vec<SessionId> {
        let sessions = self.state.sessions.iter();
        sessions
            .filter(|(_, s)| s.instance == Some(id))
            .map(|(session, _)| *session)
            .collect()
    }

    /// All instances and how full they are.
    pub fn instance_usage(&self) -> Vec<InstanceUsage> {
        let mut sessions = BTreeMap::<InstanceId, u64>::new();
        for id in self.state.sessions.values().filter_map(|s| s.instance) {
            *sessions.entry(id).or_default() += 1;
        }
        let usage = |(id, instance): (&InstanceId, &super::VolumeState)| InstanceUsage {
            spec: InstanceSpec {
                placement: Placement {
                    peers: Vec::new(),
                    ..instance.spec.placement.without_secret()
                },
                ..instance.spec.clone()
            },
            used: self
                .runtime
                .get(id)
                .map_or(0, |runtime| runtime.space.used()),
            inodes: instance.names.len() as u64,
            sessions: sessions.get(id).copied().unwrap_or(0),
        };
        self.state.volumes.iter().map(usage).collect()
    }
}
