//! Requests of administrators: instances are created, changed and removed.

use super::Node;
use crate::context::{AfterDurable, Handled, Origin, Outcome};
use crate::driver::{ConnId, Effect};
use crate::log::LogSpace;
use crate::objects::Objects;
use crate::state::{Event, SlotResult, SlotUpdate, VolumeState};
use crate::volume::Volume;
use forebay_protocol::message::{AdminRequest, InstanceSpec, InstanceUsage};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, Errno, InstanceId, Reply, Request, SessionId};

impl<O: Objects + Clone> Node<O> {
    /// A call of a session without an instance.
    pub(super) fn administer(
        &mut self,
        conn: ConnId,
        (session, slot): (SessionId, u32),
        call: Call,
    ) -> Handled<O> {
        let origin = Origin {
            conn,
            seq: call.seq,
            session,
            slot,
            passes_descriptors: false,
            session_has_descriptors: false,
            session_uses_data_connections: false,
        };
        let known = self.context.sessions.get_mut(session)?;
        known.check_order(slot, call.seq)?;
        if known.completed(slot, call.seq).is_some() {
            return Ok(self.reply_when_durable(&origin));
        }
        let update = origin.slot_update(SlotResult::Done);
        let request = match call.request {
            Request::Session(_) => return self.detach(&origin),
            _ if !self.connections.get(conn)?.peer.trusted => return Err(Errno::EACCES),
            Request::Admin(request) => request,
            Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Path(_)
            | Request::Peer(_)
            | Request::Delegated(_)
            | Request::Batch(_) => return Err(Errno::EOPNOTSUPP),
        };
        match request {
            AdminRequest::ListInstances => {
                return Ok(Outcome::Reply(Reply::Instances(self.instance_usage())));
            }
            AdminRequest::ScrubInstance { id } => {
                self.volumes.get(&id).ok_or(Errno::ENOENT)?;
                self.context.effects.push(Effect::Scrub { conn, seq: origin.seq, instance: id });
                return Ok(Outcome::Deferred);
            }
            AdminRequest::ListSessions { after } => {
                return Ok(Outcome::Reply(Reply::Sessions(self.list_sessions(after))));
            }
            AdminRequest::EvictSessions { sessions } => self.evict_sessions(&sessions)?,
            AdminRequest::CreateInstance(spec) => self.create_instance(spec, update)?,
            AdminRequest::ResizeInstance { id, capacity } => {
                self.resize_instance(id, capacity, update)?;
            }
            AdminRequest::FenceHosts { id, hosts } => self.fence_hosts(id, &hosts)?,
            AdminRequest::RemoveInstance { id, force } => {
                self.remove_instance(id, force, update)?;
            }
        }
        Ok(self.reply_when_durable(&origin))
    }

    /// Reply `Done` when the log is durable: the controller records the instances it has created and
    /// removed, and a power cut must not make these records wrong.
    fn reply_when_durable(&mut self, origin: &Origin) -> Outcome<O::Descriptor> {
        self.context.effects.push(Effect::Sync {
            conn: origin.conn,
            seq: origin.seq,
            object: None,
            put_count: 0,
        });
        Outcome::Deferred
    }

    fn create_instance(&mut self, spec: InstanceSpec, update: SlotUpdate) -> Result<(), Errno> {
        self.context.require_log_space(LogSpace::Normal)?;
        let id = spec.id;
        if self.volumes.contains_key(&id) {
            return Err(Errno::EEXIST);
        }
        if self.volumes.len() >= self.context.limits.max_instances {
            return Err(Errno::ENFILE);
        }
        if spec.inodes == 0 || spec.mode > 0o7777 {
            return Err(Errno::EINVAL);
        }
        spec.placement.validate()?;
        // The objects of a removed instance of the same number must not be taken for the new one's.
        if self.context.journal.is_removing(id) {
            return Err(Errno::EBUSY);
        }
        self.objects.add_instance(id)?;
        let now = self.context.now.wall;
        let mut volume = Volume::new(VolumeState::new(spec.clone(), now), self.objects.clone());
        volume.account_memory(&mut self.context.memory);
        if let Some(shared) = &self.shared_space {
            volume.share_space(shared.clone());
        }
        self.any_striped |= volume.is_striped();
        let replaced = self.volumes.insert(id, volume);
        assert!(replaced.is_none(), "an instance is created once");
        let (capacity, uid) = (spec.capacity, spec.uid);
        self.context.log(Event::AddInstance(spec, now), Some(update));
        tracing::info!(instance = id.0, capacity, uid, "instance created");
        Ok(())
    }

    fn resize_instance(
        &mut self,
        id: InstanceId,
        capacity: u64,
        update: SlotUpdate,
    ) -> Result<(), Errno> {
        let shrinks = |volume: &Volume<O>| capacity <= volume.state().spec.capacity;
        self.context.require_log_space(if self.volumes.get(&id).is_some_and(shrinks) {
            LogSpace::ReserveOnly
        } else {
            LogSpace::Normal
        })?;
        let volume = self.volumes.get_mut(&id).ok_or(Errno::ENOENT)?;
        volume.resize(&mut self.context, capacity, update)?;
        tracing::info!(instance = id.0, capacity, "instance resized");
        Ok(())
    }

    fn remove_instance(
        &mut self,
        id: InstanceId,
        force: bool,
        update: SlotUpdate,
    ) -> Result<(), Errno> {
        self.context.require_log_space(LogSpace::ReserveOnly)?;
        if !self.volumes.contains_key(&id) {
            return Err(Errno::ENOENT);
        }
        let sessions = self.context.sessions.attached_to(id);
        if !force && !sessions.is_empty() {
            return Err(Errno::EBUSY);
        }
        for parked in self.context.parked.take_if(|parked| parked.instance == id) {
            let stale = Reply::Failed(Errno::ESTALE);
            self.context.reply(parked.conn, parked.call.seq, stale);
        }
        if let Some(volume) = self.volumes.get_mut(&id) {
            volume.fail_waiting_calls(&mut self.context);
        }
        for session in sessions {
            self.end_session(session);
        }
        if let Some(volume) = self.volumes.remove(&id) {
            volume.release_memory(&mut self.context.memory);
        }
        self.host_fences.remove(id);
        let record = self.context.log(Event::DropInstance(id), Some(update));
        let remove = AfterDurable::RemoveInstance(id);
        self.context.journal.when_durable(record, remove);
        tracing::info!(instance = id.0, "instance removed");
        Ok(())
    }

    /// All instances and how full they are.
    pub fn instance_usage(&self) -> Vec<InstanceUsage> {
        let usage = |volume: &Volume<O>| {
            let state = volume.state();
            InstanceUsage {
                spec: InstanceSpec {
                    placement: Placement {
                        peers: Vec::new(),
                        ..state.spec.placement.without_secret()
                    },
                    ..state.spec.clone()
                },
                used: volume.used(),
                inodes: state.names.len() as u64,
                sessions: volume.session_count() as u64,
            }
        };
        self.volumes.values().map(usage).collect()
    }
}
