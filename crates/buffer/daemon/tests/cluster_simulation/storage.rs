//! Storage nodes: the daemon with its disk, fragments and stages, crashes and what they cost.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use forebay_control::node::{self, Node};
use forebay_control::protocol::Instant;
use forebay_daemon::embedded::copies;
use forebay_policy::pool::NodeId;
use forebay_protocol::layout::{BLOCK, blocks};
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::{Call, Errno, Reply, Request, SessionId, Timestamp};
use forebay_store::log::{RecoverError, Room};
use forebay_store::objects::{MemoryObjects, ObjectId, Objects};
use forebay_store::recovery;
use forebay_store::shard::{ConnId, Effect, Input, Limits, Now, Shard, fetched_in_memory};
use forebay_store::storage::{Fault, Memory};

use crate::codec;
use crate::journals::Journals;
use crate::machines::{Daemon, OpenObject, Place, rows};
use crate::network::{node_at, root};
use crate::seat::Machine;
use crate::world::{Event, MS, World};

/// Who waits for a sync, by which call, and for which object; and whether for contents of all files
/// that came whole.
pub type SyncAsked = (ConnId, u64, Option<ObjectId>, bool);

/// So small that it is full now and then.
const SEGMENT: u64 = 8 << 10;
const LEASE: u64 = 60_000 * MS;

impl World {
    fn now_of_daemon(&self) -> Now {
        let steady = self.now + 1_000_000 * MS;
        Now {
            wall: Timestamp::from_nanos(steady),
            steady,
        }
    }

    /// Daemon and node begin, from what is on the disk.
    pub fn start_node(&mut self, index: usize) {
        self.say(|| format!("node {index} starts"));
        let now = self.now_of_daemon();
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.random.next().to_le_bytes());
        self.next_link += 1;
        let peers = ConnId(self.next_link);
        let storage = &mut self.nodes[index];
        let recovered = recovery::recover(storage.disk.clone(), SEGMENT);
        let recovered = recovered.and_then(|(state, mut log)| {
            let _ = recovery::keep_spares(&storage.disk, SEGMENT);
            log.prepare_start()?;
            Ok((state, log))
        });
        let Ok((state, log)) = recovered else {
            let why = recovered.err();
            let full = |why: &RecoverError| matches!(why, RecoverError::Io(why) if why.kind() == ErrorKind::StorageFull);
            if why.as_ref().is_some_and(full) {
                // The first start of all. Somebody has to make room before it can begin.
                storage.disk.set_fault(Fault::default());
            } else {
                assert!(storage.disk.is_dead(), "no recovery: {why:?}");
            }
            return self.crash_node(index, false);
        };
        let limits = Limits {
            lease: LEASE,
            ..Limits::default()
        };
        let objects = storage.objects.clone();
        let mut shard = Shard::start(state, log.last(), objects, limits, None, now, seed).unwrap();
        shard.set_boot(storage.boot);
        shard.step(now, Input::Connected(peers, root()), &mut Vec::new());
        let daemon = Daemon {
            shard,
            log,
            peers,
            opens: BTreeMap::new(),
            lanes: BTreeMap::new(),
        };
        let node = Node::restore(
            NodeId(index as u32),
            storage.granules,
            self.instant(),
            rows(&self.nodes[index].records),
        );
        let node = node.unwrap();
        self.nodes[index].journals.sweep(|id| node.may_go_on(id));
        self.nodes[index].running = Some((daemon, node));
        // The record of this start is durable before anybody is answered.
        if !self.commit(index) || !self.sync_start(index) {
            return self.crash_node(index, false);
        }
        self.node_step(index, node::Input::Started);
    }

    fn sync_start(&mut self, index: usize) -> bool {
        let running = self.nodes[index].running.as_mut();
        running.is_some_and(|(daemon, _)| daemon.log.sync_now().is_ok())
    }

    fn instant(&self) -> Instant {
        Instant(self.now / MS)
    }

    /// `false`: the log cannot be written.
    fn commit(&mut self, index: usize) -> bool {
        let Some((daemon, _)) = &mut self.nodes[index].running else {
            return true;
        };
        for bytes in daemon.shard.take_records() {
            if daemon.log.append(&bytes).is_err() {
                return false;
            }
        }
        daemon.log.flush().is_ok() && !self.nodes[index].disk.is_dead()
    }

    pub fn daemon_step(&mut self, index: usize, input: Input) {
        let now = self.now_of_daemon();
        let Some((daemon, _)) = &mut self.nodes[index].running else {
            return;
        };
        self.steps += 1;
        // An error is the death of the process, which is seen below.
        let room = daemon.log.prepare().unwrap_or(Room::None);
        self.truth.counts.short_logs += u64::from(room < Room::Plenty);
        daemon.shard.set_room(room);
        let mut effects = Vec::new();
        daemon.shard.step(now, input, &mut effects);
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
            Effect::Reply {
                conn, seq, reply, ..
            } => self.answer(conn.0, Box::new((seq, reply, Vec::new()))),
            Effect::Fetch {
                conn,
                seq,
                object,
                attr,
                length,
            } => {
                let objects = &self.nodes[index].objects;
                let reply = fetched_in_memory(objects, object, *attr, length);
                self.answer(conn.0, Box::new((seq, reply, Vec::new())));
            }
            Effect::Sync {
                conn,
                seq,
                object,
                contents,
                ..
            } => {
                let when = self.now + MS + self.random.below(10 * MS);
                let asked = Some((conn, seq, object, contents > 0));
                self.at(when, Event::Sync(index, life, asked));
            }
            Effect::SyncLog => {
                let when = self.now + MS + self.random.below(5 * MS);
                self.at(when, Event::Sync(index, life, None));
            }
            Effect::Bulk(conn, session, lane) => {
                let before = daemon.lanes.insert((session, lane), conn.0);
                if let Some(link) = self.links.get_mut(&conn.0) {
                    link.bulk = Some(session);
                }
                // What is still on its way on the old one comes to nothing.
                if let Some(before) = before {
                    self.hang_up(before);
                }
                self.daemon_step(index, Input::Disconnected(conn));
            }
            Effect::BulkOpen(session, handle, object, mode) => {
                let open = OpenObject {
                    object,
                    mode,
                    grant: 0,
                };
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
            Effect::Hangup(conn) => self.hang_up(conn.0),
            Effect::ToPeer {
                address, message, ..
            } => {
                let to = address.parse().ok().and_then(|address| node_at(&address));
                if let Some(to) = to {
                    let (from, place) = (Place::Node(index), Place::Node(to));
                    self.send(from, place, Event::Peer(to, message));
                }
            }
            Effect::Unseal(object) => self.daemon_step(index, Input::Unsealed(object, Ok(()))),
            Effect::Written(_) | Effect::Scrub { .. } => {}
        }
    }

    /// A message of another daemon.
    pub fn peer_message(&mut self, index: usize, message: Box<PeerMessage>) {
        if let Some((daemon, _)) = &self.nodes[index].running {
            let call = Call {
                seq: 1,
                caller: None,
                request: Request::Peer(message),
            };
            let call = codec::call(&call, 0);
            self.daemon_step(index, Input::Call(daemon.peers, call));
        }
    }

    /// Objects, if any, and the log are made durable.
    pub fn sync(&mut self, index: usize, asked: Option<SyncAsked>) {
        let storage = &mut self.nodes[index];
        let Some((daemon, _)) = &mut storage.running else {
            return;
        };
        if let Some((_, _, object, contents)) = asked {
            if contents {
                storage.objects.sync_all();
            }
            object
                .into_iter()
                .for_each(|object| storage.objects.sync(object));
        }
        if daemon.log.sync_now().is_err() {
            return self.crash_node(index, false);
        }
        let last = daemon.log.last();
        self.daemon_step(index, Input::Synced(last));
        if let Some((conn, seq, ..)) = asked {
            self.answer(conn.0, Box::new((seq, Reply::Done, Vec::new())));
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
            Request::Read {
                handle,
                offset,
                length,
            } => match daemon.opens.get(&(session, handle)) {
                Some(open) if open.mode.read => {
                    let bytes = storage.objects.contents(open.object).unwrap_or_default();
                    let from = bytes.get(offset as usize..).unwrap_or_default();
                    let count = from.len().min(length as usize);
                    return (Reply::Data, from[..count].to_vec());
                }
                _ => Err(Errno::EBADF),
            },
            Request::Write {
                handle,
                offset,
                append,
            } => match daemon.opens.get_mut(&(session, handle)) {
                Some(open) if open.mode.write => {
                    let known = storage.objects.contents(open.object);
                    let end = known.map_or(0, |bytes| bytes.len() as u64);
                    let (from, at) = if append {
                        (BLOCK - 1, end)
                    } else {
                        (offset, offset)
                    };
                    match open.grant.checked_sub(blocks(from, payload.len() as u64)) {
                        None => Err(Errno::EDQUOT),
                        Some(left) => {
                            open.grant = left;
                            let count = payload.len() as u32;
                            let written = storage.objects.write(open.object, at, payload);
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
        let progress: Vec<node::Input> = progress
            .map(|(stage, (attempt, counters))| {
                node::Input::Copying(*stage, *attempt, copies::progress(counters))
            })
            .collect();
        for input in progress {
            self.node_step(index, input);
        }
        self.node_step(index, node::Input::Tick);
        self.daemon_step(index, Input::Tick);
        self.sync(index, None);
        if self.chance(30) {
            let storage = &self.nodes[index];
            if let Some((daemon, _)) = &storage.running {
                let start = daemon.log.segment_start();
                let _ = recovery::checkpoint(&storage.disk, start);
                let _ = recovery::keep_spares(&storage.disk, SEGMENT);
                if storage.disk.is_dead() {
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
            disk.set_fault(Fault {
                die_after,
                capacity: None,
            });
        } else if self.chance(crash) {
            self.truth.counts.full_logs += 1;
            let capacity = Some(self.random.below(6) * SEGMENT);
            disk.set_fault(Fault {
                die_after: None,
                capacity,
            });
        } else if !self.faulty() || self.random.chance(100) {
            disk.set_fault(Fault::default());
        }
    }

    pub fn crash_node(&mut self, index: usize, power: bool) {
        self.say(|| {
            format!(
                "node {index} crashes{}",
                if power { ": power cut" } else { "" }
            )
        });
        self.truth.counts.node_crashes += 1;
        self.kill_all(Place::Node(index));
        self.break_links_to(index);
        self.break_links_from(Place::Node(index));
        let away = if self.random.chance(200) {
            40_000
        } else {
            3000
        };
        let mut down = self.now + self.random.below(away) * MS;
        if self.faults.gone > 0 && self.chance(self.faults.gone) {
            self.say(|| format!("node {index} does not come back"));
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
        self.say(|| format!("node {index} loses its disk"));
        self.truth.counts.disks_lost += 1;
        self.truth.losses.disk.store(true, Ordering::Relaxed);
        let seed = self.random.next();
        let storage = &mut self.nodes[index];
        for plan in std::mem::take(&mut storage.fragments).into_values() {
            self.truth.damaged.insert(plan.instance);
        }
        storage.disk = Memory::new(seed);
        storage.objects = MemoryObjects::default();
        storage.journals = Journals::new(Machine(self.shared.clone()));
        storage.records.clear();
    }
}
