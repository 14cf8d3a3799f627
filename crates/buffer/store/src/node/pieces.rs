//! The parts of files that lie on nodes which are not the files' homes.
//!
//! A client shows the home's permit. Home has objects measured, resized and removed. An object
//! whose file may be no more, because it was made late or because a power cut at home took the
//! file back, is found by asking home about every object that is new, or that was there when this
//! node or home started.

use super::tasks::Goal;
use super::unseal::Waiting;
use super::{Context, Doomed, Shard};
use crate::log::LogSpace;
use crate::objects::{ObjectId, Objects};
use forebay_protocol::message::{MAX_REQUEST_INODES, OpenMode};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::placement::{CAPABILITY_LIFETIME_S, Capability, ObjectInfo};
use forebay_protocol::{Errno, HandleId, Ino, InstanceId, NodeIndex, Reply};

/// Removed files that are kept in mind for a node that does not answer.
const MAX_OWED: usize = 1 << 20;
/// Files that one message speaks of.
const BATCH: usize = 4096;

impl<O: Objects> Shard<O> {
    /// A permit for the objects of `ino` on other nodes, if there may be any.
    pub(super) fn permit(
        &self,
        instance: InstanceId,
        ino: Ino,
        mode: OpenMode,
    ) -> Result<Option<Capability>, Errno> {
        let names = self.names(instance)?;
        if names.names.find(ino)?.length().is_none() {
            return Ok(None);
        }
        let until = self.now.wall.secs.saturating_add(CAPABILITY_LIFETIME_S);
        let secret = &names.spec.placement.secret;
        Ok(Some(Capability::new(
            secret, instance, ino, mode.read, mode.write, until,
        )))
    }

    pub(super) fn new_permit(&self, context: &Context, id: HandleId) -> Result<Reply, Errno> {
        let handle = self.handle(context.session, id)?;
        let permit = self.permit(context.instance, handle.ino, handle.mode)?;
        permit.map(Reply::Capability).ok_or(Errno::EINVAL)
    }

    pub(super) fn open_object(
        &mut self,
        context: &Context,
        handle: HandleId,
        permit: &Capability,
        mode: OpenMode,
    ) -> Result<Option<Reply>, Errno> {
        let (instance, ino) = (context.instance, permit.ino);
        let names = self.names(instance)?;
        let place = &names.spec.placement;
        if !place.is_distributed() || ino.metadata_node().0 >= place.nodes || mode.truncate {
            return Err(Errno::EINVAL);
        }
        permit.verify(&place.secret, instance, self.now.wall.secs)?;
        if (mode.read && !permit.read) || (mode.write && !permit.write) {
            return Err(Errno::EACCES);
        }
        if names.names.owns(ino) {
            names.names.find(ino)?;
        }
        let object = ObjectId { instance, ino };
        let descriptor = mode.descriptor && context.local;
        if mode.write || descriptor {
            self.ensure_object(object)?;
        }
        self.add_piece_handle(context.session, instance, handle, ino, mode)?;
        let descriptor = if descriptor {
            Some(self.objects.open(object, mode)?)
        } else {
            None
        };
        let reply = Reply::Object(self.info(object)?);
        self.reply_with(context.conn, context.seq, reply, descriptor);
        Ok(None)
    }

    /// What an object says; `None` if there is none.
    pub(super) fn info(&self, object: ObjectId) -> Result<Option<ObjectInfo>, Errno> {
        let runtime = self.runtime.get(&object.instance);
        if !runtime.is_some_and(|runtime| runtime.space.has_object(object.ino)) {
            return Ok(None);
        }
        let stat = self.objects.stat(object)?;
        Ok(Some(ObjectInfo {
            size: stat.size,
            space: stat.space,
            atime: stat.atime,
            mtime: stat.mtime,
        }))
    }

    /// What the objects of several files say.
    pub(super) fn infos(
        &self,
        instance: InstanceId,
        inos: &[Ino],
    ) -> Result<Vec<Option<ObjectInfo>>, Errno> {
        if inos.len() > MAX_REQUEST_INODES {
            return Err(Errno::EINVAL);
        }
        let objects = inos.iter().map(|ino| ObjectId {
            instance,
            ino: *ino,
        });
        objects.map(|object| self.info(object)).collect()
    }

    /// Cut or extend this node's part of a file that gets `length` bytes.
    pub(super) fn resize_piece(&mut self, object: ObjectId, length: u64) -> Result<(), Errno> {
        let place = &self.names(object.instance)?.spec.placement;
        let (layout, own) = (place.layout(), place.node);
        let target = layout.object_length(object.ino, own, length);
        let last = length > 0 && layout.file_end(object.ino, own, target) == length;
        if last {
            self.ensure_object(object)?;
        }
        if self.runtime(object.instance).space.has_object(object.ino)
            && (last || self.objects.stat(object)?.size > target)
        {
            self.objects.truncate(object, target)?;
            self.recharge(object);
        }
        Ok(())
    }

    /// The home of files wants to know what the objects here say.
    pub(super) fn tell_objects(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        asked: &[(u64, Ino)],
    ) {
        let mut told = Vec::with_capacity(asked.len());
        for (task, ino) in asked {
            let object = ObjectId {
                instance,
                ino: *ino,
            };
            match self.info(object) {
                Ok(info) => told.push((*task, info)),
                Err(errno) => tracing::warn!(%errno, "a data object cannot be measured"),
            }
        }
        self.tell(instance, from, PeerPayload::ObjectStats(told));
    }

    /// A file's home wants to know what the object here says, after resizing it.
    pub(super) fn tell_object(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        task: u64,
        ino: Ino,
        length: Option<u64>,
    ) {
        if ino.metadata_node() != from {
            return;
        }
        let object = ObjectId { instance, ino };
        if let Some(length) = length
            && self.objects.has_durable_checksums(object)
        {
            let resize = Waiting::Resize { from, task, length };
            return self.await_unsealing(object, resize);
        }
        let resized = match length {
            Some(length) => self.resize_piece(object, length),
            None => Ok(()),
        };
        let info = resized.and_then(|()| self.info(object));
        self.tell(instance, from, PeerPayload::ObjectResized { task, info });
    }

    pub(super) fn remove_pieces(&mut self, instance: InstanceId, from: NodeIndex, inos: Vec<Ino>) {
        for ino in &inos {
            if ino.metadata_node() == from {
                self.remove_piece(ObjectId {
                    instance,
                    ino: *ino,
                });
            }
        }
        self.tell(instance, from, PeerPayload::ObjectsRemoved(inos));
    }

    fn remove_piece(&mut self, object: ObjectId) {
        let runtime = self.runtime(object.instance);
        if runtime.space.has_object(object.ino) {
            runtime.space.discharge(object.ino);
            runtime.fresh.remove(&object.ino);
            if let Err(error) = self.objects.remove(object) {
                tracing::warn!(%error, "a superfluous data object stays for now");
            }
        }
        let unconfirmed = &mut self.runtime(object.instance).spread.unconfirmed;
        if let Some(inos) = unconfirmed.get_mut(&object.ino.metadata_node()) {
            inos.remove(&object.ino);
        }
    }

    pub(super) fn pieces_removed(&mut self, instance: InstanceId, from: NodeIndex, inos: &[Ino]) {
        if let Some(owed) = self.runtime(instance).spread.owed.get_mut(&from) {
            for ino in inos {
                owed.remove(ino);
            }
        }
    }

    /// A file is no more, and that is durable: other nodes shall remove their objects. If this
    /// node forgets that in a crash, they will ask.
    pub(super) fn owe(&mut self, object: ObjectId) {
        let Ok(instance) = self.names(object.instance) else {
            return;
        };
        let (own, nodes) = (instance.spec.placement.node, instance.spec.placement.nodes);
        for node in (0..nodes).map(NodeIndex).filter(|node| *node != own) {
            let owed = &mut self.runtime(object.instance).spread.owed;
            let owed = owed.entry(node).or_default();
            // A node that does not answer for so long finds out by itself when it starts.
            if owed.len() < MAX_OWED {
                owed.insert(object.ino);
            }
            self.tell(
                object.instance,
                node,
                PeerPayload::RemoveObjects(vec![object.ino]),
            );
        }
    }

    /// A home has started again: it may have lost files whose objects are here.
    pub(super) fn reconsider(&mut self, instance: InstanceId, home: NodeIndex) {
        let runtime = self.runtime(instance);
        let objects: Vec<_> = runtime
            .space
            .objects()
            .filter(|ino| ino.metadata_node() == home)
            .collect();
        let unconfirmed = &mut runtime.spread.unconfirmed;
        unconfirmed.entry(home).or_default().extend(objects);
    }

    /// Another node asks which of these files are there. That one is gone is said when it is durable:
    /// a power cut must not bring a file back whose objects were removed.
    pub(super) fn check_files(&mut self, instance: InstanceId, from: NodeIndex, inos: Vec<Ino>) {
        if self.room == LogSpace::Exhausted {
            return; // it will ask again
        }
        let Ok(names) = self.names(instance) else {
            return;
        };
        let own = inos.into_iter().filter(|ino| names.names.owns(*ino));
        let (there, gone): (Vec<Ino>, _) = own.partition(|ino| names.names.get(*ino).is_some());
        for ino in &there {
            self.has_piece(instance, *ino);
        }
        if !gone.is_empty() {
            let gone = Doomed::Gone(instance, from, gone);
            self.doomed.push_back((self.last, gone));
            self.synced(self.durable);
        }
        if !there.is_empty() {
            let gone = Vec::new();
            self.tell(
                instance,
                from,
                PeerPayload::OrphansChecked {
                    existing: there,
                    removed: gone,
                },
            );
        }
    }

    pub(super) fn files_checked(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        there: &[Ino],
        gone: Vec<Ino>,
    ) {
        if let Some(inos) = self.runtime(instance).spread.unconfirmed.get_mut(&from) {
            for ino in there {
                inos.remove(ino);
            }
        }
        for ino in gone {
            if ino.metadata_node() == from {
                self.remove_piece(ObjectId { instance, ino });
            }
        }
    }

    pub(super) fn remind_of_pieces(&mut self, instance: InstanceId, node: NodeIndex) {
        let spread = &self.runtime(instance).spread;
        let some = |inos: Option<&std::collections::BTreeSet<Ino>>| -> Vec<Ino> {
            inos.into_iter().flatten().copied().take(BATCH).collect()
        };
        let owed = some(spread.owed.get(&node));
        let unconfirmed = some(spread.unconfirmed.get(&node));
        if !owed.is_empty() {
            self.tell(instance, node, PeerPayload::RemoveObjects(owed));
        }
        if !unconfirmed.is_empty() {
            self.tell(instance, node, PeerPayload::CheckOrphans(unconfirmed));
        }
    }

    /// Objects of a task's file: measured or resized here and asked for elsewhere.
    pub(super) fn do_own_part(
        &mut self,
        object: ObjectId,
        goal: Goal,
    ) -> Result<Option<ObjectInfo>, Errno> {
        if let Goal::Resize(length) = goal {
            self.resize_piece(object, length)?;
        }
        self.info(object)
    }
}
