//! Storage nodes: the daemon with its disk, fragments and stages; crashes and their losses.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use forebay_control::messages::UnixMillis;
use forebay_control::storage_node::{self, StorageNode};
use forebay_policy::pool::NodeId;
use forebay_protocol::message::DataRequest;
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::{Call, Errno, Reply, Request, SessionId, Timestamp};
use forebay_store::log::{LogSpace, RecoveryError};
use forebay_store::node::{ConnId, Effect, Input, Limits, Node, Now, fetch_reply_in_memory};
use forebay_store::objects::{MemoryObjects, ObjectId, Objects};
use forebay_store::recovery;
use forebay_store::storage::{Fault, MemoryStorage};
use forebay_units::Bytes;

use crate::actor_thread::Machine;
use crate::codec;
use crate::journals::Journals;
use crate::machines::{Daemon, MachineId, OpenObject, to_rows};
use crate::network::{node_at, root};
use crate::world::{Event, MS, World};

/// Who waits for a sync, by which call, and for which object; and whether for contents of all files
/// that came whole.
pub type SyncAsked = (ConnId, u64, Option<ObjectId>, bool);

/// Small enough to be full now and then.
const SEGMENT: u64 = 8 << 10;
const LEASE: u64 = 60_000 * MS;

impl World {
    fn now_of_daemon(&self) -> Now {
        let steady = self.now + 1_000_000 * MS;
        Now { wall: Timestamp::from_nanos(steady), steady_ns: steady }
    }

    /// Starts daemon and node from the contents of the disk.
    pub fn start_node(&mut self, index: usize) {
        self.trace_line(|| format!("node {index} starts"));
        let now = self.now_of_daemon();
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.random.next().to_le_bytes());
        self.next_link += 1;
        let peers = ConnId(self.next_link);
        let storage = &mut self.nodes[index];
        let recovered = recovery::recover_state(storage.disk.clone(), SEGMENT);
        let recovered = recovered.and_then(|(state, mut log)| {
            let _ = recovery::ensure_spares(&storage.disk, SEGMENT);
            log.ensure_start_headroom()?;
            Ok((state, log))
        });
        let Ok((state, log)) = recovered else {
            let why = recovered.err();
            let full = |why: &RecoveryError| matches!(why, RecoveryError::Io(why) if why.kind() == ErrorKind::StorageFull);
            if why.as_ref().is_some_and(full) {
                // The first start of all. Somebody has to make room before it can begin.
                storage.disk.set_fault(Fault::default());
            } else {
                assert!(storage.disk.has_crashed(), "no recovery: {why:?}");
            }
            return self.crash_node(index, false);
        };
        let limits = Limits { lease_ns: LEASE, ..Limits::default() };
        let objects = storage.objects.clone();
        let mut daemon_node =
            Node::start(state, log.last_sequence(), objects, limits, now, seed).unwrap();
        daemon_node.set_boot_id(storage.boot);
        daemon_node.step(now, Input::Connected(peers, root()), &mut Vec::new());
        let daemon = Daemon {
            node: daemon_node,
            log,
            peers,
            opens: BTreeMap::new(),
            lanes: BTreeMap::new(),
        };
        let node = StorageNode::restore(
            NodeId(index as u32),
            storage.granules,
            self.instant(),
            to_rows(&self.nodes[index].records),
        );
        let node = node.unwrap();
        self.nodes[index].journals.sweep(|id| node.may_resume_stage(id));
        self.nodes[index].running = Some((daemon, node));
        // The record of this start is durable before any reply.
        if !self.commit(index) || !self.sync_start(index) {
            return self.crash_node(index, false);
        }
        self.node_step(index, storage_node::StorageInput::Started);
    }

    fn sync_start(&mut self, index: usize) -> bool {
        let running = self.nodes[index].running.as_mut();
        running.is_some_and(|(daemon, _)| daemon.log.sync().is_ok())
    }

    fn instant(&self) -> UnixMillis {
        UnixMillis(self.now / MS)
    }

    /// Returns `false` if the log cannot be written.
    fn commit(&mut self, index: usize) -> bool {
        let Some((daemon, _)) = &mut self.nodes[index].running else {
            return true;
        };
        for bytes in daemon.node.take_records() {
            if daemon.log.append(&bytes).is_err() {
                return false;
            }
        }
        daemon.log.flush().is_ok() && !self.nodes[index].disk.has_crashed()
    }

    pub fn daemon_step(&mut self, index: usize, input: Input) {
        let now = self.now_of_daemon();
        let Some((daemon, _)) = &mut self.nodes[index].running else {
            return;
        };
        self.steps += 1;
        // An error ends the process, which is detected below.
        let room = daemon.log.ensure_headroom().unwrap_or(LogSpace::Exhausted);
        self.truth.counts.short_logs += u64::from(room < LogSpace::Normal);
        daemon.node.set_log_space(room);
        let mut effects = Vec::new();
        daemon.node.step(now, input, &mut effects);
        if !self.commit(index) {
            let power = self.power_fails();
            return self.crash_node(index, power);
        }
        for effect in effects {
            self.daemon_effect(index, effect);
        }
    }

    fn daemon_effect(&mut self, index: usize, effect: Effect<ObjectId>) {
        let life = self.nodes[index].life;
        let Some((daemon, _)) = &mut self.nodes[index].running else {
            return;
        };
        match effect {
            Effect::Reply { conn, seq, reply, .. } => {
                self.send_reply(conn.0, Box::new((seq, reply, Vec::new())))
            }
            Effect::FetchObject { conn, seq, object, attr, length } => {
                let objects = &self.nodes[index].objects;
                let reply = fetch_reply_in_memory(objects, object, *attr, length);
                self.send_reply(conn.0, Box::new((seq, reply, Vec::new())));
            }
            Effect::Sync { conn, seq, object, put_count: contents, .. } => {
                let when = self.now + MS + self.random.below(10 * MS);
                let asked = Some((conn, seq, object, contents > 0));
                self.schedule(when, Event::Sync(index, life, asked));
            }
            Effect::SyncLog => {
                let when = self.now + MS + self.random.below(5 * MS);
                self.schedule(when, Event::Sync(index, life, None));
            }
            Effect::BulkConnection(conn, session, lane) => {
                let before = daemon.lanes.insert((session, lane), conn.0);
                if let Some(link) = self.links.get_mut(&conn.0) {
                    link.bulk = Some(session);
                }
                // What is still on its way on the old one comes to nothing.
                if let Some(before) = before {
                    self.close_link(before);
                }
                self.daemon_step(index, Input::Disconnected(conn));
            }
            Effect::BulkOpen(session, handle, object, mode) => {
                let open = OpenObject { object, mode, grant: 0 };
                daemon.opens.entry((session, handle)).or_insert(open);
            }
            Effect::BulkGrant(session, handle, bytes) => {
                if let Some(open) = daemon.opens.get_mut(&(session, handle)) {
                    open.grant = bytes;
                }
            }
            Effect::BulkClose(session, handle) => {
                daemon.opens.remove(&(session, handle));
            }
            Effect::Disconnect(conn) => self.close_link(conn.0),
            Effect::SendToPeer { address, message, .. } => {
                let to = address.parse().ok().and_then(|address| node_at(&address));
                if let Some(to) = to {
                    let (from, place) = (MachineId::Node(index), MachineId::Node(to));
                    self.send(from, place, Event::Peer(to, message));
                }
            }
            Effect::InvalidateChecksums(object) => {
                self.daemon_step(index, Input::ChecksumsInvalidated(object, Ok(())))
            }
            Effect::ObjectWritten(_) | Effect::Scrub { .. } => {}
        }
    }

    /// A message of another daemon.
    pub fn peer_message(&mut self, index: usize, message: Box<PeerMessage>) {
        if let Some((daemon, _)) = &self.nodes[index].running {
            let call = Call { seq: 1, caller: None, request: Request::Peer(message) };
            let call = codec::call(&call, 0);
            self.daemon_step(index, Input::Call(daemon.peers, call));
        }
    }

    /// Makes the log, and objects if there are any, durable.
    pub fn sync(&mut self, index: usize, asked: Option<SyncAsked>) {
        let storage = &mut self.nodes[index];
        let Some((daemon, _)) = &mut storage.running else {
            return;
        };
        if let Some((_, _, object, contents)) = asked {
            if contents {
                storage.objects.sync_all_objects();
            }
            object.into_iter().for_each(|object| storage.objects.sync_object(object));
        }
        if daemon.log.sync().is_err() {
            return self.crash_node(index, false);
        }
        let last = daemon.log.last_sequence();
        self.daemon_step(index, Input::LogSynced(last));
        if let Some((conn, seq, ..)) = asked {
            self.send_reply(conn.0, Box::new((seq, Reply::Done, Vec::new())));
        }
    }

    /// A request for data.
    pub fn bulk(
        &mut self,
        index: usize,
        session: SessionId,
        request: Request,
        payload: &[u8],
    ) -> (Reply, Vec<u8>) {
        let now = self.now_of_daemon().wall;
        let storage = &mut self.nodes[index];
        let Some((daemon, _)) = &mut storage.running else {
            return (Reply::Failed(Errno::EIO), Vec::new());
        };
        let done = match request {
            Request::Data(DataRequest::Read { handle, offset, length }) => {
                match daemon.opens.get(&(session, handle)) {
                    Some(open) if open.mode.read => {
                        let bytes =
                            storage.objects.object_contents(open.object).unwrap_or_default();
                        let from = bytes.get(offset as usize..).unwrap_or_default();
                        let count = from.len().min(length as usize);
                        return (Reply::Data, from[..count].to_vec());
                    }
                    _ => Err(Errno::EBADF),
                }
            }
            Request::Data(DataRequest::Write { handle, offset, append }) => match daemon
                .opens
                .get_mut(&(session, handle))
            {
                Some(open) if open.mode.write => {
                    let known = storage.objects.object_contents(open.object);
                    let end = known.map_or(0, |bytes| bytes.len() as u64);
                    let (from, at) = if append { (BLOCK_BYTES - 1, end) } else { (offset, offset) };
                    match open.grant.checked_sub(block_bytes(from, payload.len() as u64)) {
                        None => Err(Errno::EDQUOT),
                        Some(left) => {
                            open.grant = left;
                            let count = payload.len() as u32;
                            let written = storage.objects.write_object(open.object, at, payload);
                            let set = storage.objects.set_times(open.object, None, Some(now));
                            let done = written.and(set);
                            done.map(|()| Reply::Written { count, offset: at })
                        }
                    }
                }
                _ => Err(Errno::EBADF),
            },
            _ => Err(Errno::EOPNOTSUPP),
        };
        (done.unwrap_or_else(Reply::Failed), Vec::new())
    }

    /// About once a second.
    pub fn tick_node(&mut self, index: usize) {
        if self.nodes[index].running.is_none() {
            if self.now >= self.nodes[index].down {
                self.start_node(index);
            }
            return;
        }
        let progress = self.nodes[index].copies.iter();
        let progress: Vec<storage_node::StorageInput> = progress
            .map(|(stage, (attempt, counters))| {
                storage_node::StorageInput::MoverProgress(*stage, *attempt, counters.snapshot())
            })
            .collect();
        for input in progress {
            self.node_step(index, input);
        }
        self.node_step(index, storage_node::StorageInput::Tick { written: Bytes(0) });
        self.daemon_step(index, Input::Tick);
        self.sync(index, None);
        if self.chance(30) {
            let storage = &self.nodes[index];
            if let Some((daemon, _)) = &storage.running {
                let start = daemon.log.segment_start_sequence();
                let _ = recovery::write_checkpoint(&storage.disk, start);
                let _ = recovery::ensure_spares(&storage.disk, SEGMENT);
                if storage.disk.has_crashed() {
                    self.crash_node(index, false);
                }
            }
        }
        self.node_faults(index);
    }

    pub fn power_fails(&mut self) -> bool {
        self.faults.power && self.random.chance(500)
    }

    fn node_faults(&mut self, index: usize) {
        let crash = self.faults.crash;
        let disk = self.nodes[index].disk.clone();
        if self.chance(crash) {
            let power = self.power_fails();
            self.crash_node(index, power);
        } else if self.chance(crash) {
            let die_after = Some(1 + self.random.below(20));
            disk.set_fault(Fault { crash_after_ops: die_after, capacity_bytes: None });
        } else if self.chance(crash) {
            self.truth.counts.full_logs += 1;
            let capacity = Some(self.random.below(6) * SEGMENT);
            disk.set_fault(Fault { crash_after_ops: None, capacity_bytes: capacity });
        } else if !self.faulty() || self.random.chance(100) {
            disk.set_fault(Fault::default());
        }
    }

    pub fn crash_node(&mut self, index: usize, power: bool) {
        self.trace_line(|| {
            format!("node {index} crashes{}", if power { ": power cut" } else { "" })
        });
        self.truth.counts.node_crashes += 1;
        self.kill_all(MachineId::Node(index));
        self.break_links_to(index);
        self.break_links_from(MachineId::Node(index));
        let away = if self.random.chance(200) { 40_000 } else { 3000 };
        let mut down = self.now + self.random.below(away) * MS;
        if self.faults.gone > 0 && self.chance(self.faults.gone) {
            self.trace_line(|| format!("node {index} does not come back"));
            self.truth.counts.nodes_gone += 1;
            down = u64::MAX;
        }
        let lose = self.chance(self.faults.lose_disk);
        let storage = &mut self.nodes[index];
        storage.life += 1;
        storage.running = None;
        storage.copies.clear();
        storage.orders.clear();
        storage.down = down;
        if power {
            self.truth.counts.power_cuts += 1;
            self.truth.losses.cuts.fetch_add(1, Ordering::Relaxed);
            storage.boot += 1;
            storage.disk.power_cut();
            storage.objects.power_cut();
            storage.journals.power_cut(&mut self.random);
        } else {
            storage.disk.restart_process();
        }
        if lose {
            self.lose_disk(index);
        }
    }

    fn lose_disk(&mut self, index: usize) {
        self.trace_line(|| format!("node {index} loses its disk"));
        self.truth.counts.disks_lost += 1;
        self.truth.losses.disk.store(true, Ordering::Relaxed);
        let seed = self.random.next();
        let storage = &mut self.nodes[index];
        for plan in std::mem::take(&mut storage.fragments).into_values() {
            self.truth.damaged.insert(plan.instance);
        }
        storage.disk = MemoryStorage::new(seed);
        storage.objects = MemoryObjects::default();
        storage.journals = Journals::new(Machine(self.shared.clone()));
        storage.records.clear();
    }
}
