//! Observation of packets at links.

use crate::harness;
use forebay_engine::{Context, Partition, Picoseconds, Queue, Simulation};
use forebay_machine_file::machine::{LinkClass, Machine, Routing};
use forebay_network::{
    Delivery, Fabric, JobsOfPackets, Message, MessageClass, NetEvent, NetMessage, Packet, Passage,
    ProbeOptions, Sampler, Topology, WaitMatrix, lookahead,
};
use forebay_units::Bytes;
use harness::{SMALL, machine};
use std::sync::Arc;

/// A message of a job from node to node at time 0.
#[derive(Clone, Copy)]
struct JobMessage {
    job: u8,
    from: u32,
    to: u32,
    bytes: u64,
    at: u64,
}

struct Group {
    fabric: Fabric,
    messages: Arc<Vec<JobMessage>>,
    delivered: Vec<(u32, u32, Picoseconds)>,
}

#[derive(Clone, Copy)]
enum Event {
    Net(NetEvent),
    Send(u32),
}

impl From<NetEvent> for Event {
    fn from(event: NetEvent) -> Self {
        Event::Net(event)
    }
}

impl Partition for Group {
    type Event = Event;
    type Message = NetMessage;

    fn handle(&mut self, event: Event, context: &mut Context<'_, Event, NetMessage>) {
        match event {
            Event::Net(event) => {
                if let Some(Delivery { packet: Packet { src, dst, .. }, .. }) =
                    self.fabric.handle(event, context)
                {
                    self.delivered.push((src, dst, context.now));
                }
            }
            Event::Send(index) => {
                let JobMessage { job, from, to, bytes, at } = self.messages[index as usize];
                let class = MessageClass::Request;
                let message = Message { to, bytes, tag: index.into(), kind: job, class, born: at };
                self.fabric.send(from, message, context);
            }
        }
        self.fabric.drained.clear();
    }

    fn receive(&mut self, at: Picoseconds, message: NetMessage, queue: &mut Queue<Event>) {
        self.fabric.receive(at, message, queue);
    }
}

struct Observed {
    delivered: Vec<(u32, u32, Picoseconds)>,
    waits: WaitMatrix,
    passages: Vec<Passage>,
    /// Bytes of each link: of its statistics, and summed over its intervals.
    bytes: Vec<(u64, u64)>,
}

fn run(
    machine: &Machine,
    messages: &[JobMessage],
    threads: usize,
    options: Option<&ProbeOptions>,
) -> Observed {
    let topology = Arc::new(Topology::new(machine));
    let network = Arc::new(machine.network.clone());
    let messages = Arc::new(messages.to_vec());
    let group = |g| {
        let mut fabric = Fabric::new(topology.clone(), network.clone(), g, 1);
        if let Some(options) = options {
            fabric.observe(options);
        }
        Group { fabric, messages: messages.clone(), delivered: Vec::new() }
    };
    let groups = (0..topology.groups).map(group).collect();
    let mut simulation = Simulation::new(groups, lookahead(&network), threads);
    simulation.for_each_partition(|g, _, queue| {
        for (index, m) in (0..).zip(messages.iter()) {
            if u32::from(topology.location(m.from).group) == g {
                queue.push(m.at, NetEvent::FIRST_FREE_KEY + index, Event::Send(index));
            }
        }
    });
    let end = simulation.run(&|_, _| true).last_event;
    let mut observed = Observed {
        delivered: Vec::new(),
        waits: WaitMatrix::default(),
        passages: Vec::new(),
        bytes: Vec::new(),
    };
    for mut group in simulation.into_partitions() {
        assert!(group.fabric.is_idle());
        observed.delivered.extend(group.delivered);
        let links = group.fabric.link_statistics(end);
        for (link, bins) in links.iter().zip(group.fabric.link_bins()) {
            observed.bytes.push((link.bytes, bins.bytes.iter().sum()));
        }
        if let Some(probe) = group.fabric.probe.take() {
            observed.waits.merge(&probe.waits.unwrap());
            let trace = probe.trace.unwrap();
            let sampler = trace.sampler();
            observed.passages.extend(trace.into_records(sampler));
        }
    }
    observed
}

/// Kind and job are the same; everything is observed.
fn everything(one_in: u64) -> ProbeOptions {
    let mut job_of_kind = [0; 16];
    job_of_kind[1] = 1;
    ProbeOptions {
        jobs: JobsOfPackets::OfKinds(job_of_kind),
        waits: true,
        series: true,
        trace: Some((Sampler::one_in(one_in), 1 << 20)),
    }
}

/// Nodes 0 and 1 of one router send two packets each at time 0, of job 0 and job 1, to nodes 2 and 3
/// of another router of the chassis. A packet takes 500 ns on a node link and 800 ns on the shared
/// rank-1 link. The first packets are ready for it at 200 ns, the second ones at 700 ns:
///
/// - A1: 200 to 1,000, no wait
/// - B1: 1,000 to 1,800, waits 800 for A1
/// - A2: 1,800 to 2,600, waits 1,100: 300 for A1, 800 for B1
/// - B2: 2,600 to 3,400, waits 1,900: 300 for A1, 800 for B1, 800 for A2
#[test]
fn two_jobs_on_one_link_delay_each_other_as_calculated_by_hand() {
    let machine = machine(SMALL, Routing::Minimal);
    let message = |job, from, to| JobMessage { job, from, to, bytes: 8_000, at: 0 };
    let observed = run(&machine, &[message(0, 0, 2), message(1, 1, 3)], 1, Some(&everything(1)));
    let rank1 = observed.waits.delays[LinkClass::Rank1 as usize];
    assert_eq!(rank1[0][..2], [300_000, 800_000], "job 0 by jobs 0 and 1");
    assert_eq!(rank1[1][..2], [1_900_000, 800_000], "job 1 by jobs 0 and 1");
    assert_eq!(observed.waits.totals[LinkClass::Rank1 as usize][..2], [1_100_000, 2_700_000]);
    // The node link of each sender delays its second packet by the first.
    let node = observed.waits.delays[LinkClass::Node as usize];
    assert_eq!(
        (node[0][..2].to_vec(), node[1][..2].to_vec()),
        (vec![500_000, 0], vec![0, 500_000])
    );
    // Four packets over three links each.
    assert_eq!(observed.waits.passages.iter().flatten().sum::<u64>(), 12);
    let last = observed.passages.iter().rfind(|p| p.class == LinkClass::Rank1).unwrap();
    assert_eq!((last.ready, last.start, last.end), (700_000, 2_600_000, 3_400_000));
    assert_eq!((last.src, last.dst, last.bytes, last.tag), (1, 3, 4_000, 1));
}

/// Random messages of two jobs through buffers of one packet.
fn congested() -> (Machine, Vec<JobMessage>) {
    let mut machine = machine(SMALL, Routing::ProgressiveAdaptive);
    let network = &mut machine.network;
    for link in [&mut network.node, &mut network.rank1, &mut network.rank2, &mut network.global] {
        link.buffer = Bytes(4_000);
    }
    let nodes = machine.nodes.len() as u32;
    let messages = (0..600).map(|i| JobMessage {
        job: (i % 2) as u8,
        from: i % nodes,
        to: (i * 7 + 11 + i / nodes) % nodes,
        bytes: 1 + u64::from(i * 37 % 20_000),
        at: u64::from(i / nodes) * 1_000_000,
    });
    let messages = messages.filter(|m| m.from != m.to).collect();
    (machine, messages)
}

#[test]
fn delays_by_cause_add_up_to_all_waits_on_any_number_of_threads() {
    let (machine, messages) = congested();
    let observed = run(&machine, &messages, 1, Some(&everything(1)));
    for class in 0..4 {
        for job in 0..2 {
            let sum: u128 = observed.waits.delays[class][job].iter().sum();
            assert_eq!(sum, observed.waits.totals[class][job], "class {class}, job {job}");
        }
    }
    let waited = |class: LinkClass| observed.waits.totals[class as usize].iter().sum::<u128>();
    assert!(waited(LinkClass::Rank1) > 0 && waited(LinkClass::Global) > 0);
    let by_passages: u128 = observed.passages.iter().map(|p| u128::from(p.start - p.ready)).sum();
    assert_eq!(by_passages, observed.waits.totals.iter().flatten().sum::<u128>());
    assert!(observed.bytes.iter().all(|(all, bins)| all == bins));
    assert!(observed.bytes.iter().any(|(all, _)| *all > 0));
    let parallel = run(&machine, &messages, 3, Some(&everything(1)));
    assert_eq!(parallel.waits, observed.waits);
    assert_eq!(parallel.passages, observed.passages);
    assert_eq!(parallel.delivered, observed.delivered);
}

#[test]
fn observation_does_not_change_the_run() {
    let (machine, messages) = congested();
    let plain = run(&machine, &messages, 1, None);
    let observed = run(&machine, &messages, 1, Some(&everything(1)));
    assert_eq!(plain.delivered, observed.delivered);
}

#[test]
fn sample_has_all_passages_of_some_messages() {
    let (machine, messages) = congested();
    let all = run(&machine, &messages, 1, Some(&everything(1))).passages;
    let some = run(&machine, &messages, 1, Some(&everything(8))).passages;
    let sampler = Sampler::one_in(8);
    let expected: Vec<Passage> =
        all.into_iter().filter(|p| sampler.selects(p.tag, p.kind == 0)).collect();
    assert!(!some.is_empty());
    assert_eq!(some, expected);
}
