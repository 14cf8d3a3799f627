//! Kinds of faults and their rates.

use forebay_control::controller::{self, Request};
use forebay_policy::pool::NodeId;

use crate::machines::MachineId;
use crate::random::Random;
use crate::requests::envelope;
use crate::store_support::object_faults::FaultRates;
use crate::world::{HOSTS, MS, NODES, SECOND, World};

/// Rates of faults, per mille.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub lose_message: u64,
    pub repeat_message: u64,
    pub delay_message: u64,
    /// A connection breaks when something is sent on it.
    pub break_connection: u64,
    /// A crash before an effect, or within a second.
    pub crash: u64,
    /// Crashes may be power cuts.
    pub power: bool,
    /// A crashed node has lost its disk.
    pub lose_disk: u64,
    /// The device under data objects fails.
    pub objects: FaultRates,
    /// A fault of the parallel file system, or a partition, within a second.
    pub outage: u64,
    /// Two machines cannot reach each other, and reach all others, within a second.
    pub cut_pair: u64,
    /// A crashed node never returns; an operator gives it up.
    pub never_returns: u64,
    /// Time at which faults end, so that everything can finish.
    pub until: u64,
    /// No fault: processes make requests in batches, too, and jobs stage directories in.
    pub batches: bool,
}

impl Faults {
    pub fn none() -> Faults {
        Faults {
            lose_message: 0,
            repeat_message: 0,
            delay_message: 0,
            break_connection: 0,
            crash: 0,
            power: false,
            lose_disk: 0,
            objects: FaultRates::default(),
            outage: 0,
            cut_pair: 0,
            never_returns: 0,
            until: 0,
            batches: false,
        }
    }

    /// Only partitions of two machines, and many of them.
    pub fn partitions(seed: u64) -> Faults {
        let cut_pair = 50 + Random::new(seed ^ 0x9a15).below(150);
        Faults { cut_pair, until: 150 * SECOND, ..Faults::none() }
    }

    pub fn of(seed: u64) -> Faults {
        let mut random = Random::new(seed ^ 0xfa17);
        let power = random.chance(400);
        let mut pairs = Random::new(seed ^ 0x9a15);
        let cut_pair = u64::from(pairs.chance(300)) * (5 + pairs.below(30));
        let mut device = Random::new(seed ^ 0xde_71ce);
        let objects = match device.chance(300) {
            true => FaultRates { write_back: device.below(60), transfer: device.below(10) },
            false => FaultRates::default(),
        };
        Faults {
            objects,
            cut_pair,
            lose_message: random.below(200),
            repeat_message: random.below(200),
            delay_message: random.below(200),
            break_connection: random.below(2) * random.below(30),
            crash: random.below(8) + u64::from(power) * random.below(16),
            power,
            lose_disk: u64::from(random.chance(150)) * random.below(100),
            outage: random.below(2) * random.below(30),
            never_returns: u64::from(random.chance(250)) * random.below(250),
            until: 150 * SECOND,
            batches: false,
        }
    }

    /// The same, with batches of requests.
    pub fn with_batches(seed: u64) -> Faults {
        Faults { batches: true, ..Faults::of(seed) }
    }
}

impl World {
    /// Injects faults into the parallel file system, the network and the pool.
    pub fn outages(&mut self) {
        if self.now >= self.pfs_back {
            self.pfs.set_away(false);
            self.pfs.set_capacity(None);
        }
        if self.chance(self.faults.outage) {
            self.pfs_back = self.now + self.random.below(20) * SECOND;
            match self.random.below(3) {
                0 => {
                    self.oracle.counts.pfs_crashes += 1;
                    self.pfs.crash();
                    self.pfs.set_away(true);
                }
                1 => {
                    self.oracle.counts.pfs_away += 1;
                    self.pfs.set_away(true);
                }
                _ => self.pfs.set_capacity(Some(self.random.below(100_000))),
            }
        }
        if self.chance(self.faults.outage) {
            self.oracle.counts.isolations += 1;
            let place = match self.random.below(8) {
                0 => MachineId::Controller,
                n @ 1..5 => MachineId::Node(n as usize - 1),
                n => MachineId::Host(n as usize - 5),
            };
            let longest = if self.random.chance(200) { 70 } else { 10 };
            let until = self.now + self.random.below(longest * SECOND);
            self.trace_line(|| format!("{place:?} is cut off for {} ms", (until - self.now) / MS));
            self.isolated.insert(place, until);
        }
        if self.faults.cut_pair > 0 {
            self.cut_pair();
        }
        let drain = self.chance(self.faults.outage);
        if drain || !self.faulty() && self.now % (10 * SECOND) < SECOND {
            self.oracle.counts.drains += u64::from(drain);
            let node = NodeId(self.random.below(NODES as u64) as u32);
            let drained = drain && self.random.chance(500);
            let evacuate = drained && self.random.chance(700);
            let request = Request::DrainNode { node, drained, evacuate };
            let envelope = envelope(self.random.next().into(), request);
            self.controller_step(controller::ControllerInput::Request(Box::new(envelope)));
        }
        self.give_up_nodes();
        self.give_up_lost_disks();
    }

    /// Partitions two machines: most often a host and the controller, which then presumes the host dead.
    fn cut_pair(&mut self) {
        if !self.chance(self.faults.cut_pair) {
            return;
        }
        self.oracle.counts.pairs_cut += 1;
        let host = MachineId::Host(self.random.below(HOSTS as u64) as usize);
        let node = MachineId::Node(self.random.below(NODES as u64) as usize);
        let other = MachineId::Node(self.random.below(NODES as u64) as usize);
        let (a, b) = match self.random.below(10) {
            0..6 => (MachineId::Controller, host),
            6 | 7 => (node, host),
            8 => (MachineId::Controller, node),
            _ => (node, other),
        };
        let longest = if self.random.chance(500) { 120 } else { 15 };
        let until = self.now + self.random.below(longest * SECOND);
        self.trace_line(|| {
            format!("{a:?} and {b:?} are partitioned for {} ms", (until - self.now) / MS)
        });
        self.cut_pairs.insert((a.min(b), a.max(b)), until);
    }

    /// An operator gives up the data on disks that were lost, so that the new ones are used.
    fn give_up_lost_disks(&mut self) {
        let Some(controller) = &self.controller else {
            return;
        };
        let wrong = controller.status().nodes.into_iter().filter(|node| node.wrong_disk);
        for node in wrong.map(|node| node.id).collect::<Vec<_>>() {
            if self.random.chance(900) {
                continue;
            }
            let request = Request::ForgetNode { node, allow_data_loss: true };
            let envelope = envelope(self.random.next().into(), request);
            self.controller_step(controller::ControllerInput::Request(Box::new(envelope)));
        }
    }

    /// An operator gives up nodes that will not return, and now and then one that would have.
    /// Some return nevertheless.
    fn give_up_nodes(&mut self) {
        if self.faults.never_returns == 0 {
            return;
        }
        for index in 0..NODES {
            let node = NodeId(index as u32);
            if self.is_given_up(index) {
                continue;
            }
            let gone = self.nodes[index].down_until == u64::MAX;
            let mistaken = self.nodes[index].node.is_none() && self.chance(20);
            let asks = gone && self.random.chance(100);
            if !mistaken && !asks {
                continue;
            }
            let lost = self.random.chance(700);
            self.trace_line(|| format!("node {index} is to be given up: {gone}, {lost}"));
            let request = Request::ForgetNode { node, allow_data_loss: lost };
            let envelope = envelope(self.random.next().into(), request);
            self.controller_step(controller::ControllerInput::Request(Box::new(envelope)));
            if gone && self.is_given_up(index) && self.random.chance(300) {
                self.nodes[index].down_until = self.now + self.random.below(60 * SECOND);
            }
        }
    }

    /// Whether the controller's records say that a node is given up.
    pub fn is_given_up(&self, index: usize) -> bool {
        let controller = self.controller.as_ref();
        controller.is_some_and(|c| c.state().storage.is_forgotten(NodeId(index as u32)))
    }

    pub fn faulty(&self) -> bool {
        self.now < self.faults.until
    }

    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.faulty() && self.random.chance(per_mille)
    }
}
