//! Locks of the objects of shared files, as links.
//!
//! A write holds the lock of its object for the time that it takes there. One process alone has the
//! lock as often as it asks, and waits for a hand-over only once, if another node wrote before. With
//! several nodes at an object the lock changes hands with nearly every write, and each has to wait for
//! its turn.

use super::runs::ObjectKey;
use crate::io::{ExtentLocks, PS_PER_SECOND};
use forebay_flow::{FlowId, LinkId, Transport};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Times of a write at its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockTimes {
    /// For which it holds the lock, ps.
    pub hold: f64,
    /// Additional time after a write of another node, ps.
    pub handover: f64,
    /// Further time if the lock called back is that of the write just before, ps.
    pub flush: f64,
    /// Bytes of one request.
    pub piece: f64,
    /// Requests for which the lock is handed over once: those of one call that are at the object
    /// together, or all of a run.
    pub batch: f64,
    /// Whether clients lock extents, as on a parallel file system, and not objects.
    pub extents: bool,
}

impl LockTimes {
    /// Time of a hand-over at an object to which several nodes write, ps. The lock called back is that of a
    /// neighbour in the file; of `nodes` in random order it is the one that wrote just before with a
    /// probability of 1 / (nodes - 1).
    fn handover(&self, nodes: usize) -> f64 {
        self.handover + self.flush / (nodes.max(2) - 1) as f64
    }

    /// Bytes per second that an object takes if a share `handovers` of its writes follows one of
    /// another of `nodes`.
    fn rate(&self, handovers: f64, nodes: usize) -> f64 {
        let time = self.hold + handovers * self.handover(nodes);
        self.piece * PS_PER_SECOND as f64 / time.max(1.0)
    }
}

/// A flow that writes to an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub flow: FlowId,
    pub node: u32,
    /// The flow's cap as long as there is no hand-over but the first.
    pub cap: f64,
    /// Bytes of a transfer, and its duration alone, ps.
    pub transfer: (f64, f64),
    /// Whether its lock had to be called back from others.
    pub called_back: bool,
}

/// An object that was written.
#[derive(Clone, Debug)]
struct Object {
    link: LinkId,
    writers: Vec<Writer>,
    last_writer: u32,
}

impl Object {
    /// Nodes of the writers.
    fn nodes(&self) -> usize {
        let mut nodes: Vec<u32> = self.writers.iter().map(|writer| writer.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// Share of the writers that had to call locks back.
    fn callbacks(&self) -> f64 {
        let called_back = self.writers.iter().filter(|writer| writer.called_back).count();
        match self.writers.len() {
            0 | 1 => 0.0,
            writers => called_back as f64 / writers as f64,
        }
    }

    /// Share of the calls that follow one of another node, with the writers in random order.
    fn handovers(&self) -> f64 {
        let writers = self.writers.len() as f64;
        if writers < 2.0 {
            return 0.0;
        }
        let mut nodes: Vec<u32> = self.writers.iter().map(|writer| writer.node).collect();
        nodes.sort_unstable();
        let pairs: f64 = nodes
            .chunk_by(|a, b| a == b)
            .map(|same| same.len() as f64 * (same.len() as f64 - 1.0))
            .sum();
        1.0 - pairs / (writers * (writers - 1.0))
    }
}

/// The objects of a shared file.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    times: LockTimes,
    objects: FxHashMap<ObjectKey, Object>,
    extent_locks: ExtentLocks,
}

impl Objects {
    pub fn new(times: LockTimes) -> Self {
        Objects { times, objects: FxHashMap::default(), extent_locks: ExtentLocks::default() }
    }

    /// The link of an object, for a flow that begins to write to it; and the time that the flow's first
    /// write waits for the hand-over, ps. `extent` are the bytes of the file that it will write.
    pub fn enter(
        &mut self,
        key: ObjectKey,
        (node, extent): (u32, Range<u64>),
        add_link: impl FnOnce(f64) -> LinkId,
    ) -> (LinkId, f64) {
        let object = self.objects.entry(key).or_insert_with(|| {
            let link = add_link(self.times.rate(0.0, 1));
            Object { link, writers: Vec::new(), last_writer: node }
        });
        let is_handed_over = match self.times.extents {
            true => self.extent_locks.enqueue((key.0, key.1), node, extent, true).is_some(),
            false => object.last_writer != node,
        };
        object.last_writer = node;
        let wait = match is_handed_over {
            true if self.times.flush > 0.0 => self.times.handover(object.nodes() + 1),
            true => self.times.handover,
            false => 0.0,
        };
        (object.link, wait)
    }

    /// A flow has begun to write.
    pub fn add(&mut self, key: ObjectKey, writer: Writer, transport: &mut Transport) {
        let object = self.object(key);
        object.writers.push(writer);
        self.update(key, transport);
    }

    /// Flows have ended, each of which wrote to an object.
    pub fn remove(&mut self, ended: &[(ObjectKey, FlowId)], transport: &mut Transport) {
        for (key, flow) in ended {
            self.object(*key).writers.retain(|writer| writer.flow != *flow);
        }
        ended.iter().for_each(|(key, _)| self.update(*key, transport));
    }

    fn object(&mut self, key: ObjectKey) -> &mut Object {
        let object = self.objects.get_mut(&key);
        object.unwrap_or_else(|| unreachable!("{key:?} was not entered"))
    }

    fn update(&mut self, key: ObjectKey, transport: &mut Transport) {
        let times = self.times;
        let object = self.object(key);
        let handovers = if times.extents { object.callbacks() } else { object.handovers() };
        let handovers = handovers / times.batch;
        let nodes = if times.flush > 0.0 { object.nodes() } else { 1 };
        transport.set_capacity(object.link, times.rate(handovers, nodes));
        for writer in &object.writers {
            let (bytes, alone) = writer.transfer;
            let waited = bytes / times.piece * handovers * times.handover(nodes);
            let with_handovers = bytes * PS_PER_SECOND as f64 / (alone + waited);
            let cap = if handovers > 0.0 { with_handovers.min(writer.cap) } else { writer.cap };
            transport.set_cap(writer.flow, cap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flow::FlowSpec;

    fn objects() -> (Objects, Transport, Vec<FlowId>) {
        let times = LockTimes {
            hold: 50e6,
            handover: 400e6,
            flush: 0.0,
            piece: 65_536.0,
            batch: 1.0,
            extents: false,
        };
        let mut transport = Transport::new(1);
        let spec = FlowSpec { count: 1, weight: 1.0, cap: 1e9, path: &[] };
        let flows = (0..4).map(|_| transport.start(spec, 1.0)).collect();
        (Objects::new(times), transport, flows)
    }

    fn writer(flow: FlowId, node: u32) -> Writer {
        Writer { flow, node, cap: 1e9, transfer: (65_536.0, 200e6), called_back: false }
    }

    /// By hand: 64 KiB in 50 us are 1.31 GB/s; with a hand-over of 400 us each, 146 MB/s. A process that
    /// takes 200 us alone, then takes 600 us.
    #[test]
    fn lock_of_several_nodes_is_handed_over_with_each_write() {
        let (mut objects, mut transport, flows) = objects();
        let key = (0, 0, 0);
        let (link, wait) = objects.enter(key, (7, 0..1), |rate| transport.add_link(rate));
        objects.add(key, writer(flows[0], 7), &mut transport);
        assert_eq!(wait, 0.0);
        assert!((transport.solver().capacity(link) / 1.31072e9 - 1.0).abs() < 1e-9);
        assert_eq!(objects.enter(key, (8, 0..1), |_| unreachable!()), (link, 400e6));
        objects.add(key, writer(flows[1], 8), &mut transport);
        transport.update_rates();
        assert!((transport.solver().rate(flows[0]) / 109.227e6 - 1.0).abs() < 1e-5);
        assert!((transport.solver().capacity(link) / 145.6355e6 - 1.0).abs() < 1e-6);
        objects.remove(&[(key, flows[0])], &mut transport);
        assert!((transport.solver().capacity(link) / 1.31072e9 - 1.0).abs() < 1e-9);
    }

    /// Two messages of 40 us, and 1 ms until a write is on disk: of two nodes each waits for that of the
    /// other, of eleven for a tenth of it on average.
    #[test]
    fn writers_wait_for_the_disk_if_the_lock_is_that_of_the_write_before() {
        let times = LockTimes { handover: 40e6, flush: 1e9, ..objects().0.times };
        assert_eq!([2, 3, 11].map(|nodes| times.handover(nodes)), [1_040e6, 540e6, 140e6]);
        // 64 KiB in 50 us and a hand-over.
        assert!((times.rate(1.0, 11) / (65_536.0 / 190e-6) - 1.0).abs() < 1e-9);
    }

    /// Two of node 7 and two of node 8: of the 12 ordered pairs, 4 are of one node.
    #[test]
    fn writers_of_one_node_need_no_handover_between_them() {
        let (mut objects, mut transport, flows) = objects();
        let key = (0, 3, 1);
        for (flow, node) in flows.into_iter().zip([7, 7, 8, 8]) {
            objects.enter(key, (node, 0..1), |rate| transport.add_link(rate));
            objects.add(key, writer(flow, node), &mut transport);
        }
        assert!((objects.object(key).handovers() - 8.0 / 12.0).abs() < 1e-12);
    }
}
