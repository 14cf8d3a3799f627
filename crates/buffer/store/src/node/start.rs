//! A daemon starts: what it remembers meets what is on its disk.

use super::{Attached, Event, Limits, NodeState, Now, Runtime, Shard};
use crate::log::LogSpace;
use crate::objects::{ObjectId, Objects};
use forebay_net::auth::PoolKey;
use forebay_protocol::Errno;
use forebay_protocol::peer::Incarnation;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

impl<O: Objects> Shard<O> {
    /// The daemon starts: from a recovered state whose last record is `last`. `seed` is random;
    /// secrets follow from it. Objects that no inode refers to are removed.
    pub fn start(
        state: NodeState,
        last: u64,
        objects: O,
        limits: Limits,
        key: Option<PoolKey>,
        now: Now,
        seed: [u8; 32],
    ) -> Result<Shard<O>, Errno> {
        let mut shard = Shard {
            state,
            objects,
            limits,
            key,
            munge: false,
            boot: 0,
            now,
            room: LogSpace::Normal,
            seed,
            random: 0,
            started: now.steady_ns,
            conns: BTreeMap::new(),
            attached: BTreeMap::new(),
            returning: BTreeSet::new(),
            collected: false,
            runtime: BTreeMap::new(),
            records: Vec::new(),
            last,
            durable: last,
            doomed: VecDeque::new(),
            contents: 1,
            effects: Vec::new(),
            incarnation: Incarnation::default(),
            tasks: 0,
            spread: false,
            settle_due: 0,
            parked: Vec::new(),
            unsealing: BTreeMap::new(),
            unlocked: false,
            tried: None,
            reminded: now.steady_ns,
        };
        shard.log(Event::Start, None);
        shard.incarnation = Incarnation {
            epoch: shard.state.epoch,
            nonce: shard.secret() as u64 | 1,
        };
        let mut instances = shard.state.volumes.values();
        shard.spread = instances.any(|instance| instance.spec.placement.is_distributed());
        shard.adopt_objects()?;
        let sessions = shard.state.sessions.iter();
        shard.returning = sessions
            .filter(|(_, session)| session.instance.is_some())
            .map(|(id, _)| *id)
            .collect();
        for id in shard.state.sessions.keys() {
            let attached = Attached {
                idle_since: Some(now.steady_ns),
                ..Attached::default()
            };
            shard.attached.insert(*id, attached);
        }
        shard.adopt_sessions();
        Ok(shard)
    }

    /// Match objects with inodes after a start.
    fn adopt_objects(&mut self) -> Result<(), Errno> {
        for id in self.objects.list_instances()? {
            if !self.state.volumes.contains_key(&id) {
                self.objects.remove_instance(id)?;
            }
        }
        for (id, instance) in &self.state.volumes {
            self.objects.add_instance(*id)?;
            let mut runtime = Runtime::default();
            for (ino, space) in self.objects.list_objects(*id)? {
                if !instance.names.owns(ino) {
                    let home = ino.metadata_node();
                    let spread = &mut runtime.spread;
                    spread.unconfirmed.entry(home).or_default().insert(ino);
                    runtime.space.charge(ino, space);
                } else if instance.names.get(ino).is_some() {
                    runtime.space.charge(ino, space);
                } else {
                    self.objects.remove(ObjectId { instance: *id, ino })?;
                }
            }
            runtime.spread.adopt(instance);
            self.runtime.insert(*id, runtime);
        }
        Ok(())
    }
}
