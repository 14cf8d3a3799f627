//! Traces in the JSON trace event format, which Perfetto (ui.perfetto.dev) shows: a process for each
//! node and router, with as many lanes as it has slices at a time.

use super::Job;
use super::requests::{Span, Stage};
use crate::event::{PacketKind, RequestKind};
use forebay_machine_file::machine::LinkClass;
use forebay_network::{Passage, Sampler, Topology};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Numbers of routers begin here, above those of all nodes.
const FIRST_ROUTER: u32 = 100_000_000;

/// A slice of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Number of the node, or of the router plus 100,000,000.
    pub process: u32,
    /// Lane of the process: slices of a lane do not overlap, unless one contains the other.
    pub lane: u32,
    /// Begin, ps.
    pub begin: u64,
    /// End, ps.
    pub end: u64,
    /// Its name.
    pub label: &'static str,
    /// Name of the job.
    pub job: &'static str,
    /// Tag of the message or request.
    pub tag: u64,
    /// Sending and receiving node of a packet, and its bytes.
    pub packet: Option<(u32, u32, u32)>,
    /// Slices of a process with the same key share a lane.
    key: u64,
    /// Time until which the slice needs its lane; `None`: it lies in another one.
    reserved: Option<u64>,
}

/// The sampled packets and requests of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Share of the messages that are in the trace.
    pub share: f64,
    /// Name of each process.
    pub processes: BTreeMap<u32, String>,
    /// By process, lane, and begin; a slice before those in it.
    pub slices: Vec<Slice>,
}

impl Trace {
    pub(super) fn new(sampler: Sampler) -> Trace {
        Trace { share: sampler.share(), processes: BTreeMap::new(), slices: Vec::new() }
    }

    /// Adds a packet at a link of a group: its wait, if it waits, and its transmission.
    pub(super) fn add_passage(&mut self, topology: &Topology, group: u16, passage: &Passage) {
        let process = match passage.router {
            Some(router) => {
                let number = u32::from(group) * u32::from(topology.routers()) + u32::from(router);
                let name =
                    || format!("router {} of group {group}", topology.router_name(group, router));
                self.processes.entry(FIRST_ROUTER + number).or_insert_with(name);
                FIRST_ROUTER + number
            }
            None => {
                let node = topology.sender(group, passage.port);
                self.processes.entry(node).or_insert_with(|| format!("node {node}"));
                node
            }
        };
        let key = (1 << 63) | self.slices.len() as u64;
        let slice = Slice {
            process,
            lane: 0,
            begin: passage.ready,
            end: passage.start,
            label: "wait for link",
            job: PacketKind::of_number(passage.kind).job().name(),
            tag: passage.tag,
            packet: Some((passage.src, topology.node_of_interface(passage.dst), passage.bytes)),
            key,
            reserved: Some(passage.end),
        };
        let waits = passage.start > passage.ready;
        if waits {
            self.slices.push(slice);
        }
        self.slices.push(Slice {
            begin: passage.start,
            end: passage.end,
            label: match (passage.class, passage.router) {
                (LinkClass::Node, None) => "from node",
                (LinkClass::Node, Some(_)) => "to node",
                (LinkClass::Rank1, _) => "rank-1 link",
                (LinkClass::Rank2, _) => "rank-2 link",
                (LinkClass::Global, _) => "rank-3 link",
            },
            reserved: (!waits).then_some(passage.end),
            ..slice
        });
    }

    /// Adds a stage of a request.
    pub(super) fn add_span(&mut self, span: &Span) {
        let name = || match span.stage {
            Stage::Request(_) => format!("node {} (client)", span.node),
            _ => format!("node {} (server)", span.node),
        };
        let process = self.processes.entry(span.node).or_default();
        if !process.ends_with(')') {
            *process = name();
        }
        let is_outer = matches!(span.stage, Stage::Request(_) | Stage::AtServer(_));
        self.slices.push(Slice {
            process: span.node,
            lane: 0,
            begin: span.begin,
            end: span.end,
            label: label(span.stage),
            job: Job::Ior.name(),
            tag: span.tag,
            packet: None,
            key: span.tag,
            reserved: is_outer.then_some(span.end),
        });
    }

    /// Gives each slice a lane, and sorts them.
    pub(super) fn arrange(&mut self) {
        self.slices.sort_by_key(|s| {
            (s.process, s.begin, s.reserved.is_none(), std::cmp::Reverse(s.end), s.key, s.label)
        });
        let mut process = None;
        let mut free_at: Vec<u64> = Vec::new();
        let mut lane_of: FxHashMap<u64, (usize, u64)> = FxHashMap::default();
        for slice in &mut self.slices {
            if process != Some(slice.process) {
                process = Some(slice.process);
                free_at.clear();
                lane_of.clear();
            }
            let outer = lane_of.get(&slice.key).filter(|(_, end)| *end >= slice.end);
            let lane = match (slice.reserved, outer) {
                (None, Some((lane, _))) => *lane,
                (until, _) => {
                    let until = until.unwrap_or(slice.end);
                    let lane = free_at.iter().position(|free| *free <= slice.begin);
                    let lane = lane.unwrap_or(free_at.len());
                    if lane == free_at.len() {
                        free_at.push(0);
                    }
                    free_at[lane] = until;
                    lane_of.insert(slice.key, (lane, until));
                    lane
                }
            };
            slice.lane = lane as u32;
        }
        // Stable: slices of a lane stay in the order of their begins.
        self.slices.sort_by_key(|s| (s.process, s.lane));
    }

    /// Writes the trace as JSON.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"sampled_share\":{}}},\"traceEvents\":[",
            self.share
        )?;
        let mut separator = "\n";
        for (process, name) in &self.processes {
            write!(
                out,
                "{separator}{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":\
                 {{\"name\":\"{name}\"}}}}",
                process + 1
            )?;
            separator = ",\n";
        }
        for slice in &self.slices {
            let micros = |ps: u64| Micros(ps);
            write!(
                out,
                "{separator}{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\
                 \"ts\":{},\"dur\":{},\"args\":{{\"tag\":\"{:x}\"",
                slice.label,
                slice.job,
                slice.process + 1,
                slice.lane + 1,
                micros(slice.begin),
                micros(slice.end - slice.begin),
                slice.tag
            )?;
            if let Some((from, to, bytes)) = slice.packet {
                write!(out, ",\"from\":{from},\"to\":{to},\"bytes\":{bytes}")?;
            }
            write!(out, "}}}}")?;
            separator = ",\n";
        }
        out.write_all(b"\n]}\n")
    }
}

/// A time in ps as microseconds, exactly.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

fn label(stage: Stage) -> &'static str {
    match stage {
        Stage::Request(RequestKind::Write) => "write request",
        Stage::Request(RequestKind::Read) => "read request",
        Stage::Request(RequestKind::Sync) => "fsync request",
        Stage::Request(RequestKind::Metadata) => "metadata request",
        Stage::AtServer(RequestKind::Write) => "write",
        Stage::AtServer(RequestKind::Read) => "read",
        Stage::AtServer(RequestKind::Sync) => "fsync",
        Stage::AtServer(RequestKind::Metadata) => "metadata operation",
        Stage::Dispatch => "dispatch",
        Stage::Thread => "wait for thread",
        Stage::DataPath => "wait for data path",
        Stage::FetchData => "fetch data",
        Stage::WaitForRoom => "wait for page cache",
        Stage::WaitForLock => "wait for lock",
        Stage::HoldLock => "hold lock",
        Stage::Flash => "flash",
        Stage::Copy => "copy from page cache",
        Stage::SendData => "send data",
        Stage::Service => "service",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(tag: u64, stage: Stage, begin: u64, end: u64) -> Span {
        Span { tag, node: 7, stage, begin, end }
    }

    /// Two requests overlap: each has a lane, with its stages in it.
    #[test]
    fn overlapping_requests_get_lanes_of_their_own() {
        let mut trace = Trace::new(Sampler::one_in(1));
        let kind = RequestKind::Write;
        for (tag, at) in [(1, 0), (2, 50), (3, 200)] {
            trace.add_span(&span(tag, Stage::Dispatch, at, at + 10));
            trace.add_span(&span(tag, Stage::Flash, at + 10, at + 100));
            trace.add_span(&span(tag, Stage::AtServer(kind), at, at + 100));
        }
        trace.arrange();
        let lanes: Vec<(u64, u32, &str)> =
            trace.slices.iter().map(|s| (s.tag, s.lane, s.label)).collect();
        assert_eq!(
            lanes,
            [
                (1, 0, "write"),
                (1, 0, "dispatch"),
                (1, 0, "flash"),
                (3, 0, "write"),
                (3, 0, "dispatch"),
                (3, 0, "flash"),
                (2, 1, "write"),
                (2, 1, "dispatch"),
                (2, 1, "flash"),
            ]
        );
        assert_eq!(trace.processes[&7], "node 7 (server)");
    }

    #[test]
    fn times_are_exact_in_microseconds() {
        assert_eq!(Micros(1_234_567_890_123).to_string(), "1234567.890123");
        assert_eq!(Micros(5).to_string(), "0.000005");
    }
}
