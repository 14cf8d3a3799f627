//! Locks of the objects of shared files, as links.
//!
//! A write holds the lock of its object for the time that it takes there. One process alone has the
//! lock as often as it asks, and waits for a hand-over only once, if another node wrote before. With
//! several nodes at an object the lock changes hands with nearly every write, and each has to wait for
//! its turn. On a parallel file system clients lock extents instead, and requests wait as their order at the
//! object demands ([`super::extent_waits`]).

use super::extent_waits::Callbacks;
use super::runs::ObjectKey;
use crate::io::PS_PER_SECOND;
use forebay_flow::{FlowId, LinkId, Transport};
use rustc_hash::FxHashMap;

/// Times of a write at its object.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockTimes {
    /// For which it holds the lock, ps.
    pub hold: f64,
    /// Additional time after a write of another node, ps.
    pub handover: f64,
    /// Bytes of one request.
    pub piece: f64,
    /// Requests of one call that are at the object together, for which the lock is handed over once.
    pub batch: f64,
}

impl LockTimes {
    /// Bytes per second that an object takes if its requests wait for hand-overs of `handover` ps on average.
    fn rate(&self, handover: f64) -> f64 {
        let time = self.hold + handover;
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
    /// Time that it takes, as a multiple of that by rates.
    pub scale: f64,
    /// Waits for locks on extents, where clients lock these and not the object.
    pub callbacks: Option<Callbacks>,
}

/// An object that was written.
#[derive(Clone, Debug)]
struct Object {
    link: LinkId,
    writers: Vec<Writer>,
    last_writer: u32,
}

impl Object {
    /// Mean time, ps, for which a request waits for locks on extents; `None` where clients do not lock these.
    fn callback(&self) -> Option<f64> {
        let mut sum = Callbacks::default();
        for writer in &self.writers {
            let of_writer = writer.callbacks?;
            sum.waited += of_writer.waited;
            sum.requests += of_writer.requests;
        }
        (sum.requests > 0.0).then(|| sum.waited / sum.requests)
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
}

impl Objects {
    pub fn new(times: LockTimes) -> Self {
        Objects { times, objects: FxHashMap::default() }
    }

    /// The link of an object, for a flow that begins to write to it; and the time that the flow's first
    /// write waits for the hand-over, ps. `callbacks` are the waits of its requests where clients lock extents,
    /// and there is no hand-over.
    pub fn enter(
        &mut self,
        key: ObjectKey,
        (node, callbacks): (u32, Option<Callbacks>),
        add_link: impl FnOnce(f64) -> LinkId,
    ) -> (LinkId, f64) {
        let object = self.objects.entry(key).or_insert_with(|| {
            let link = add_link(self.times.rate(0.0));
            Object { link, writers: Vec::new(), last_writer: node }
        });
        let is_other = std::mem::replace(&mut object.last_writer, node) != node;
        let wait = match callbacks {
            None if is_other => self.times.handover,
            Some(_) | None => 0.0,
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
        if let Some(callback) = object.callback() {
            return transport.set_capacity(object.link, times.rate(callback));
        }
        // Of each request, ps.
        let handover = object.handovers() / times.batch * times.handover;
        transport.set_capacity(object.link, times.rate(handover));
        for writer in &object.writers {
            let (bytes, alone) = writer.transfer;
            let waited = bytes / times.piece * handover;
            let time = (alone + waited) * writer.scale;
            let with_handovers = bytes * PS_PER_SECOND as f64 / time;
            let cap = if handover > 0.0 { with_handovers.min(writer.cap) } else { writer.cap };
            transport.set_cap(writer.flow, cap);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_flow::FlowSpec;

    fn objects() -> (Objects, Transport, Vec<FlowId>) {
        let times = LockTimes { hold: 50e6, handover: 400e6, piece: 65_536.0, batch: 1.0 };
        let mut transport = Transport::new(1);
        let spec = FlowSpec { count: 1, weight: 1.0, cap: 1e9, path: &[] };
        let flows = (0..4).map(|_| transport.start(spec, 1.0)).collect();
        (Objects::new(times), transport, flows)
    }

    fn writer(flow: FlowId, node: u32) -> Writer {
        Writer { flow, node, cap: 1e9, transfer: (65_536.0, 200e6), scale: 1.0, callbacks: None }
    }

    /// By hand: 64 KiB in 50 us are 1.31 GB/s; with a hand-over of 400 us each, 146 MB/s. A process that
    /// takes 200 us alone, then takes 600 us.
    #[test]
    fn lock_of_several_nodes_is_handed_over_with_each_write() {
        let (mut objects, mut transport, flows) = objects();
        let key = (0, 0, 0);
        let (link, wait) = objects.enter(key, (7, None), |rate| transport.add_link(rate));
        objects.add(key, writer(flows[0], 7), &mut transport);
        assert_eq!(wait, 0.0);
        assert!((transport.solver().capacity(link) / 1.31072e9 - 1.0).abs() < 1e-9);
        assert_eq!(objects.enter(key, (8, None), |_| unreachable!()), (link, 400e6));
        objects.add(key, writer(flows[1], 8), &mut transport);
        transport.update_rates();
        assert!((transport.solver().rate(flows[0]) / 109.227e6 - 1.0).abs() < 1e-5);
        assert!((transport.solver().capacity(link) / 145.6355e6 - 1.0).abs() < 1e-6);
        objects.remove(&[(key, flows[0])], &mut transport);
        assert!((transport.solver().capacity(link) / 1.31072e9 - 1.0).abs() < 1e-9);
    }

    /// Four requests of one writer wait for 600 us in all, four of another one for 200 us: 100 us each, after
    /// which 64 KiB take 50 us.
    #[test]
    fn requests_wait_for_locks_on_extents_one_after_another() {
        let (mut objects, mut transport, flows) = objects();
        let key = (1, 2, 0);
        for ((flow, node), waited) in flows.into_iter().zip([7, 8]).zip([600e6, 200e6]) {
            let callbacks = Some(Callbacks { waited, requests: 4.0, until: 0 });
            let entered = objects.enter(key, (node, callbacks), |rate| transport.add_link(rate));
            assert_eq!(entered.1, 0.0);
            objects.add(key, Writer { callbacks, ..writer(flow, node) }, &mut transport);
        }
        let rate = transport.solver().capacity(objects.object(key).link);
        assert!((rate / (65_536.0 / 150e-6) - 1.0).abs() < 1e-9, "{rate}");
    }

    /// Two of node 7 and two of node 8: of the 12 ordered pairs, 4 are of one node.
    #[test]
    fn writers_of_one_node_need_no_handover_between_them() {
        let (mut objects, mut transport, flows) = objects();
        let key = (0, 3, 1);
        for (flow, node) in flows.into_iter().zip([7, 7, 8, 8]) {
            objects.enter(key, (node, None), |rate| transport.add_link(rate));
            objects.add(key, writer(flow, node), &mut transport);
        }
        assert!((objects.object(key).handovers() - 8.0 / 12.0).abs() < 1e-12);
    }
}
