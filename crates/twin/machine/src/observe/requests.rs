//! Requests at clients and servers: their stages, and what servers do over time.

use super::ObserveOptions;
use crate::event::RequestKind;
use forebay_network::{SampleBuffer, Timeline};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// From its first packet to its completion, at its client.
    Request(RequestKind),
    /// From its arrival to its end, at its server.
    AtServer(RequestKind),
    /// Dispatch, with the wait for it.
    Dispatch,
    /// Waits for a thread.
    Thread,
    /// Waits for the server's data path.
    DataPath,
    /// The data of a write are on their way.
    FetchData,
    /// Waits until data in the server's page cache have been flushed.
    WaitForRoom,
    /// Waits for its object's lock.
    WaitForLock,
    /// Holds its object's lock.
    HoldLock,
    /// Flash, with the wait for it.
    Flash,
    /// A thread copies the data of a read out of the server's page cache.
    Copy,
    /// The server sends the data of a read.
    SendData,
    /// Metadata operation or fsync, with the wait for it.
    Service,
}

/// A stage of a sampled request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub tag: u64,
    /// Node on which it takes place.
    pub node: u32,
    pub stage: Stage,
    /// Begin and end, ps.
    pub begin: u64,
    pub end: u64,
}

/// Columns of a server's timeline.
pub(super) const WRITTEN: usize = 0;
pub(super) const READ: usize = 1;
/// Requests at the server, times ps.
pub(super) const DEPTH: usize = 2;
/// Columns in all.
pub(super) const COLUMNS: usize = 3;

/// A server over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerTimeline {
    pub timeline: Timeline<COLUMNS>,
    requests: u64,
    changed_at: u64,
}

impl ServerTimeline {
    /// Counts the requests at the server up to `now`, and then one more or less.
    fn change(&mut self, now: u64, more: bool) {
        let amount = self.requests * (now - self.changed_at);
        self.timeline.add_over(self.changed_at, now, DEPTH, amount);
        self.changed_at = now;
        if more {
            self.requests += 1;
        } else {
            assert!(self.requests > 0, "a request leaves a server twice");
            self.requests -= 1;
        }
    }
}

/// The observations of a group's clients and servers.
#[derive(Default)]
pub(crate) struct IoObserver {
    /// Time that requests waited at each server (by node), ps.
    pub waits: Option<BTreeMap<u32, u128>>,
    /// Servers over time, by node.
    pub servers: Option<BTreeMap<u32, ServerTimeline>>,
    /// Stages of sampled requests.
    pub spans: Option<SampleBuffer<Span>>,
    /// Begin of the sampled requests of this group's clients, by tag.
    begun: FxHashMap<u64, (RequestKind, u64)>,
}

impl IoObserver {
    pub fn new(options: &ObserveOptions, groups: u16) -> IoObserver {
        IoObserver {
            waits: options.delays.then(BTreeMap::new),
            servers: options.series.then(BTreeMap::new),
            spans: options.stages(groups).map(|(sampler, most)| SampleBuffer::new(sampler, most)),
            begun: FxHashMap::default(),
        }
    }

    /// Records a stage of a request, of which it waited for `waited` ps.
    pub fn stage(&mut self, span: Span, waited: u64) {
        if let Some(waits) = &mut self.waits {
            *waits.entry(span.node).or_default() += u128::from(waited);
        }
        self.push(span);
    }

    fn push(&mut self, span: Span) {
        if let Some(spans) = &mut self.spans
            && span.end > span.begin
        {
            spans.push(span.tag, false, || span);
        }
    }

    /// A client sends a request.
    pub fn begin_request(&mut self, tag: u64, kind: RequestKind, now: u64) {
        if let Some(spans) = &self.spans
            && spans.sampler().selects(tag, false)
        {
            self.begun.insert(tag, (kind, now));
        }
    }

    /// A request of a client's node is done.
    pub fn end_request(&mut self, tag: u64, node: u32, now: u64) {
        if let Some((kind, begin)) = self.begun.remove(&tag) {
            self.push(Span { tag, node, stage: Stage::Request(kind), begin, end: now });
        }
    }

    /// A request arrives at a server.
    pub fn enter_server(&mut self, node: u32, now: u64) {
        if let Some(servers) = &mut self.servers {
            servers.entry(node).or_default().change(now, true);
        }
    }

    /// A request of `bytes` that arrived at `arrived` leaves a server.
    pub fn leave_server(
        &mut self,
        node: u32,
        tag: u64,
        kind: RequestKind,
        times: (u64, u64),
        bytes: u64,
    ) {
        let (begin, end) = times;
        if let Some(servers) = &mut self.servers {
            let server = servers.entry(node).or_default();
            server.change(end, false);
            match kind {
                RequestKind::Write => server.timeline.add(end, WRITTEN, bytes),
                RequestKind::Read => server.timeline.add(end, READ, bytes),
                RequestKind::Sync | RequestKind::Metadata => {}
            }
        }
        self.push(Span { tag, node, stage: Stage::AtServer(kind), begin, end });
    }
}
