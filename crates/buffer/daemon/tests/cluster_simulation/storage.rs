//! Storage nodes: the daemon with its disk, fragments and stages; crashes and their losses.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use forebay_control::messages::UnixMillis;
use forebay_control::storage_node::{self, StorageNode};
use forebay_policy::pool::NodeId;
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::{Call, Reply, Request, SessionId, Timestamp};
use forebay_store::log::{LogSpace, RecoveryError};
use forebay_store::node::{ConnId, Input, Now};
use forebay_units::Bytes;

use crate::actor_thread::Machine;
use crate::codec;
use crate::journals::Journals;
use crate::machines::{MachineId, to_rows};
use crate::network::node_at;
use crate::store_support::daemon::{Output, SyncRequest, at};
use crate::store_support::memory_storage::Fault;
use crate::store_support::object_faults::FaultRates;
use crate::store_support::seeds::root;
use crate::world::{Event, MS, World};

/// Small enough to be full now and then.
pub const SEGMENT_BYTES: u64 = 8 << 10;
pub const LEASE_NS: u64 = 60_000 * MS;

impl World {
    fn now_of_daemon(&self) -> Now {
        at(self.now + 1_000_000 * MS)
    }

    /// Starts daemon and node from the contents of the disk.
    pub fn start_node(&mut self, index: usize) {
        self.trace_line(|| format!("node {index} starts"));
        let (now, instant) = (self.now_of_daemon(), UnixMillis(self.now / MS));
        let seed = self.random.next();
        self.next_link += 1;
        let peers = ConnId(self.next_link);
        let storage = &mut self.nodes[index];
        if let Err(error) = storage.daemon.start(now, seed) {
            let disk = &storage.daemon.storage;
            if matches!(&error, RecoveryError::Io(error) if error.kind() == ErrorKind::StorageFull)
            {
                // The first start of all. An operator has to free space before it can begin.
                disk.set_fault(Fault::default());
            } else {
                assert!(disk.has_crashed(), "no recovery: {error}");
            }
            return self.crash_node(index, false);
        }
        (storage.peers, storage.data_slots) = (peers, Default::default());
        let records = to_rows(&storage.records);
        storage.daemon.restore_fences(StorageNode::fences_in(&records).unwrap());
        let id = NodeId(index as u32);
        let mut node = StorageNode::restore(id, storage.granules, instant, records).unwrap();
        if self.has_old_node && index == 0 {
            node.share_no_stages();
        }
        storage.journals.sweep(|id| node.may_resume_stage(id));
        storage.node = Some(node);
        self.daemon_step(index, Input::Connected(peers, root(false)));
        self.node_step(index, storage_node::StorageInput::Started);
    }

    pub fn daemon_step(&mut self, index: usize, input: Input) {
        let now = self.now_of_daemon();
        let storage = &mut self.nodes[index];
        if storage.node.is_none() {
            return;
        }
        self.steps += 1;
        let outputs = storage.daemon.step(now, input);
        self.note_lost_data(index);
        let storage = &self.nodes[index];
        let is_short = storage.daemon.log_space < LogSpace::Normal;
        self.oracle.counts.short_logs += u64::from(is_short);
        let Some(outputs) = outputs else {
            let power_cut = self.power_fails();
            return self.crash_node(index, power_cut);
        };
        for output in outputs {
            self.daemon_output(index, output);
        }
    }

    fn daemon_output(&mut self, index: usize, output: Output) {
        if self.nodes[index].node.is_none() {
            return;
        }
        let life = self.nodes[index].life;
        match output {
            Output::Reply(conn, sent) => self.reply(conn, sent.seq, sent.reply),
            Output::Sync(request) => {
                let when = self.now + MS + self.random.below(10 * MS);
                self.schedule(when, Event::Sync(index, life, Some(request)));
            }
            Output::SyncLog => {
                let when = self.now + MS + self.random.below(5 * MS);
                self.schedule(when, Event::Sync(index, life, None));
            }
            Output::DataConnection(conn, session, slot) => {
                let data_slots = &mut self.nodes[index].data_slots;
                let predecessor = data_slots.insert((session, slot), conn.0);
                if let Some(link) = self.links.get_mut(&conn.0) {
                    link.data_session = Some(session);
                }
                // Requests in flight on the predecessor are not carried out.
                if let Some(predecessor) = predecessor {
                    self.close_link(predecessor);
                }
                self.daemon_step(index, Input::Disconnected(conn));
            }
            Output::Disconnect(conn) => {
                self.close_link(conn.0);
                self.daemon_step(index, Input::Disconnected(conn));
            }
            Output::Message { address, message, .. } => {
                let to = address.parse().ok().and_then(|address| node_at(&address));
                if let Some(to) = to {
                    let (from, target) = (MachineId::Node(index), MachineId::Node(to));
                    self.send(from, target, Event::Peer(to, Box::new(message)));
                }
            }
        }
    }

    /// A message of another daemon arrives.
    pub fn peer_message(&mut self, index: usize, message: Box<PeerMessage>) {
        if self.nodes[index].node.is_some() {
            let call = Call::new(1, Request::Peer(message));
            let call = codec::call(&call, 0);
            self.daemon_step(index, Input::Call(self.nodes[index].peers, call));
        }
    }

    /// Makes the log durable, and before it what a call requests.
    pub fn sync(&mut self, index: usize, request: Option<SyncRequest>) {
        let storage = &mut self.nodes[index];
        if storage.node.is_none() {
            return;
        }
        let synced = match &request {
            Some(request) => storage.daemon.sync_objects(request).map(drop),
            None => Ok(()),
        };
        self.note_lost_data(index);
        let storage = &mut self.nodes[index];
        let Some(last) = storage.daemon.sync_log() else {
            return self.crash_node(index, false);
        };
        self.daemon_step(index, Input::LogSynced(last));
        if let Some(SyncRequest { conn, seq, .. }) = request {
            self.reply(conn, seq, synced.map_or_else(Reply::Failed, |()| Reply::Done));
        }
    }

    /// Data that could not be written back count as lost in a power cut: nobody expects them unless they are
    /// synced later.
    fn note_lost_data(&mut self, index: usize) {
        let lost = self.nodes[index].daemon.objects.take_lost();
        if !lost.is_empty() {
            self.trace_line(|| format!("node {index} loses unsynced data of {lost:?}"));
            self.oracle.counts.failed_write_backs += 1;
            self.oracle.losses.power_cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request arrives on a data connection.
    pub fn data_call(
        &mut self,
        index: usize,
        session: SessionId,
        request: &Request,
        payload: &[u8],
    ) -> (Reply, Vec<u8>) {
        let now: Timestamp = self.now_of_daemon().wall;
        self.nodes[index].daemon.data_call(now, session, request, payload)
    }

    /// About once a second.
    pub fn tick_node(&mut self, index: usize) {
        if self.nodes[index].node.is_none() {
            if self.now >= self.nodes[index].down_until {
                self.start_node(index);
            }
            return;
        }
        let progress = self.nodes[index].movers.iter();
        let progress: Vec<storage_node::StorageInput> = progress
            .flat_map(|(stage, mover)| {
                let (attempt, now) = (mover.attempt, mover.counters.snapshot());
                let copied = mover
                    .barrier
                    .tally()
                    .map(|tally| storage_node::StorageInput::ShareCopied(*stage, attempt, tally));
                let progress = storage_node::StorageInput::MoverProgress(*stage, attempt, now);
                std::iter::once(progress).chain(copied)
            })
            .collect();
        for input in progress {
            self.node_step(index, input);
        }
        self.node_step(index, storage_node::StorageInput::Tick { written: Bytes(0) });
        self.daemon_step(index, Input::Tick);
        self.sync(index, None);
        // In the end the checkpointer makes what space there is.
        let is_short = self.nodes[index].daemon.log_space < LogSpace::Normal;
        let due = self.chance(30) || (!self.faulty() && is_short);
        if due && self.nodes[index].node.is_some() {
            let daemon = &self.nodes[index].daemon;
            let _ = daemon.write_checkpoint();
            let _ = daemon.ensure_spares();
            if daemon.storage.has_crashed() {
                self.crash_node(index, false);
            }
        }
        self.node_faults(index);
    }

    pub fn power_fails(&mut self) -> bool {
        self.faults.power && self.random.chance(500)
    }

    fn node_faults(&mut self, index: usize) {
        let crash = self.faults.crash;
        let disk = self.nodes[index].daemon.storage.clone();
        self.set_object_faults(index);
        // An operator restarts a daemon whose syncs all fail.
        let is_restarted = self.nodes[index].daemon.puts_fail() && self.random.chance(300);
        if is_restarted {
            self.crash_node(index, false);
        } else if self.chance(crash) {
            let power_cut = self.power_fails();
            self.crash_node(index, power_cut);
        } else if self.chance(crash) {
            let crash_after_ops = Some(1 + self.random.below(20));
            disk.set_fault(Fault { crash_after_ops, capacity_bytes: None });
        } else if self.chance(crash) {
            self.oracle.counts.full_logs += 1;
            let capacity_bytes = Some(self.random.below(3) * SEGMENT_BYTES);
            disk.set_fault(Fault { crash_after_ops: None, capacity_bytes });
        } else if !self.faulty() || self.random.chance(100) {
            disk.set_fault(Fault::default());
        }
    }

    /// Failures of the device under data objects, while there are faults.
    fn set_object_faults(&mut self, index: usize) {
        let rates = if self.faulty() { self.faults.objects } else { FaultRates::default() };
        if self.faults.objects != FaultRates::default() {
            let seed = self.random.next();
            self.nodes[index].daemon.objects.set_faults(seed, rates);
        }
    }

    pub fn crash_node(&mut self, index: usize, power_cut: bool) {
        self.trace_line(|| {
            format!("node {index} crashes{}", if power_cut { ": power cut" } else { "" })
        });
        self.oracle.counts.node_crashes += 1;
        self.kill_all(MachineId::Node(index));
        self.break_links_to(index);
        self.break_links_from(MachineId::Node(index));
        let longest = if self.random.chance(200) { 40_000 } else { 3000 };
        let mut down_until = self.now + self.random.below(longest) * MS;
        if self.faults.never_returns > 0 && self.chance(self.faults.never_returns) {
            self.trace_line(|| format!("node {index} does not return"));
            self.oracle.counts.nodes_gone += 1;
            down_until = u64::MAX;
        }
        let loses_disk = self.chance(self.faults.lose_disk);
        let storage = &mut self.nodes[index];
        storage.life += 1;
        storage.node = None;
        storage.movers.clear();
        storage.orders.clear();
        storage.down_until = down_until;
        storage.daemon.stop(power_cut);
        if power_cut {
            self.oracle.counts.power_cuts += 1;
            self.oracle.losses.power_cuts.fetch_add(1, Ordering::Relaxed);
            storage.journals.power_cut(&mut self.random);
        }
        if loses_disk {
            self.lose_disk(index);
        }
    }

    fn lose_disk(&mut self, index: usize) {
        self.trace_line(|| format!("node {index} loses its disk"));
        self.oracle.counts.disks_lost += 1;
        self.oracle.losses.disk.store(true, Ordering::Relaxed);
        let seed = self.random.next();
        let storage = &mut self.nodes[index];
        for plan in std::mem::take(&mut storage.fragments).into_values() {
            self.oracle.damaged.insert(plan.instance);
        }
        storage.daemon.replace_disk(seed);
        storage.journals = Journals::new(Machine(self.shared.clone()));
        storage.records.clear();
    }
}
