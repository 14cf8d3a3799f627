//! Collective operations of MPI on `toy`, compared with hand calculations.

use forebay_machine::results::CollectiveRun;
use forebay_machine::study::{
    Background, CollectiveStudy, SimOptions, simulate_collective, simulate_ior,
};
use forebay_machine_file::machine::Machine;
use forebay_units::{Bytes, Time};
use forebay_workload::collective::{Algorithm, CollectiveSpec, Operation};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::{TrafficPattern, TrafficSpec};

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

fn study(operation: Operation, size: u64, nodes: u32, ppn: u32) -> CollectiveStudy {
    CollectiveStudy {
        spec: CollectiveSpec::new(operation, Bytes(size)),
        nodes,
        ppn,
        iterations: 10,
        warm_up: 2,
        start: Time::from_ns(1000),
        background: None,
    }
}

fn with(algorithm: Algorithm, study: CollectiveStudy) -> CollectiveStudy {
    let spec = CollectiveSpec { algorithm: Some(algorithm), ..study.spec };
    CollectiveStudy { spec, ..study }
}

fn run(study: &CollectiveStudy) -> CollectiveRun {
    simulate_collective(&toy(), study, &SimOptions::default(), &|_, _, _| true).unwrap()
}

/// Mean time of an operation, us.
fn mean_us(study: &CollectiveStudy) -> f64 {
    run(study).alone.mean_seconds * 1e6
}

/// Overhead of sending and of receiving; and between two nodes of a router, two links and the router
/// of 100 ns each, and an envelope of 128 bytes at 8 GB/s.
const ROUND_US: f64 = 2.0 + 0.316;
/// Before the data of a message of more than 64 KiB with its envelope: a request, its clearance, and the
/// overhead of taking in either.
const RENDEZVOUS_US: f64 = 2.0 * (0.316 + 1.0);

fn assert_near(found: f64, by_hand: f64) {
    assert!((found / by_hand - 1.0).abs() < 1e-3, "{found}, by hand {by_hand}");
}

#[test]
fn barrier_of_two_nodes_takes_one_round() {
    assert_near(mean_us(&study(Operation::Barrier, 0, 2, 1)), ROUND_US);
    // Four processes a node: two levels of 500 ns before and after.
    assert_near(mean_us(&study(Operation::Barrier, 0, 2, 4)), ROUND_US + 2.0);
    // On one node there is only shared memory.
    assert_near(mean_us(&study(Operation::Barrier, 0, 1, 4)), 2.0);
}

#[test]
fn barrier_takes_a_round_for_each_doubling_of_the_nodes() {
    for (nodes, rounds) in [(3, 2.0), (4, 2.0), (7, 3.0), (14, 4.0)] {
        let time = mean_us(&study(Operation::Barrier, 0, nodes, 1));
        // Within a group a message crosses up to two more links, of at most 20 ns, routers of 100 ns
        // and 25.6 ns for its length. In each round of the barrier before, the nodes can drift apart
        // by as much: they do not enter at the same time.
        let way = 2.0 * (0.1 + 0.02 + 0.0256);
        let most = rounds * (ROUND_US + 2.0 * way);
        assert!(time >= rounds * ROUND_US && time <= most, "{nodes} nodes: {time} us");
    }
}

#[test]
fn ring_allreduce_of_two_nodes_moves_and_combines_halves() {
    let time = mean_us(&with(Algorithm::Ring, study(Operation::Allreduce, 1 << 20, 2, 1)));
    // Two rounds with half of the vector by rendezvous at 8 GB/s, 300 ns of links and router; once it is
    // combined, at 8 GB/s.
    let half = 524_288.0 / 8e3;
    assert_near(time, 2.0 * (2.0 + RENDEZVOUS_US + half + 0.3) + half);
}

#[test]
fn operations_send_the_bytes_of_their_algorithms() {
    let total = |study: CollectiveStudy| {
        let run = run(&study);
        assert_eq!(run.alone.bytes, 12 * run.bytes_per_operation, "all iterations");
        run.bytes_per_operation
    };
    // 2 (n - 1) / n of the vector from each of n nodes, independent of the processes.
    let ring = with(Algorithm::Ring, study(Operation::Allreduce, 100_000, 10, 3));
    assert_eq!(total(ring), 10 * 180_000);
    // Each of 12 x 2 processes has 1,000 bytes for each process of another node.
    assert_eq!(total(study(Operation::Alltoall, 1000, 12, 2)), 12 * 11 * 4 * 1000);
    // Each node's blocks to all others.
    assert_eq!(total(study(Operation::Allgather, 5000, 9, 4)), 9 * 8 * 4 * 5000);
    assert_eq!(total(study(Operation::Broadcast, 64, 9, 4)), 8 * 64);
    assert_eq!(total(study(Operation::Barrier, 0, 9, 4)), 0);
}

#[test]
fn messages_are_counted_with_those_of_the_barriers() {
    // 12 iterations of a barrier of 3 rounds and an allreduce with 2 folding and 2 other rounds,
    // which on 5 nodes are 2 + 2 x 4 messages.
    let run = run(&study(Operation::Allreduce, 8, 5, 1));
    assert_eq!((run.algorithm.as_str(), run.rounds), ("recursive-doubling", 4));
    assert_eq!(run.alone.messages, 12 * (3 * 5 + 2 + 2 * 4));
}

#[test]
fn tree_is_faster_for_short_vectors_and_rabenseifner_for_long_ones() {
    for (size, shorter, longer) in [
        (8, Algorithm::RecursiveDoubling, Algorithm::Rabenseifner),
        (1 << 20, Algorithm::Rabenseifner, Algorithm::RecursiveDoubling),
    ] {
        let time = |algorithm| mean_us(&with(algorithm, study(Operation::Allreduce, size, 16, 1)));
        assert!(time(shorter) < 0.8 * time(longer), "{size}: {shorter} and {longer}");
    }
}

fn traffic(load: f64) -> Option<Background> {
    let spec = TrafficSpec::new(TrafficPattern::Uniform, Bytes::kib(4), load, 1).unwrap();
    Some(Background::Traffic { spec, nodes: 36, placement: Placement::RandomNodes })
}

fn beside_ior() -> Option<Background> {
    let arguments = "-w -F -t 1m -b 4m".split_whitespace().map(String::from);
    let ior = Box::new(Ior::parse(&arguments.collect::<Vec<_>>()).unwrap().remove(0));
    Some(Background::Ior { ior, nodes: 30, ppn: 4, placement: Placement::RandomNodes })
}

fn scattered() -> SimOptions {
    SimOptions { placement: Placement::RandomNodes, ..SimOptions::default() }
}

#[test]
fn other_load_makes_an_allreduce_slower() {
    for (background, least) in [(traffic(0.5), 1.1), (beside_ior(), 1.02)] {
        let mut study = study(Operation::Allreduce, 8, 16, 4);
        (study.iterations, study.background) = (100, background);
        let run = simulate_collective(&toy(), &study, &scattered(), &|_, _, _| true).unwrap();
        let (mean, p99) = (run.mean_ratio.unwrap(), run.p99_ratio.unwrap());
        assert!(mean > least && p99 > mean, "{:?}: {mean}, {p99}", run.background);
        assert_eq!(run.warnings, Vec::<String>::new());
    }
}

#[test]
fn iterations_after_the_end_of_ior_are_reported() {
    let mut study = study(Operation::Allreduce, 8, 4, 1);
    (study.start, study.background) = (Time::from_ns(1_000_000_000), beside_ior());
    let warnings = run(&study).warnings;
    assert!(warnings[0].contains("10 of 10 iterations ended after IOR"), "{warnings:?}");
}

#[test]
fn any_number_of_threads_gives_equal_results() {
    for (operation, size, background) in [
        (Operation::Allreduce, 70_000, traffic(0.4)),
        (Operation::Alltoallv, 3_000, None),
        (Operation::Broadcast, 20_000, beside_ior()),
        (Operation::Reduce, 5_000, None),
        (Operation::Allgather, 3_000, traffic(0.2)),
    ] {
        let mut study = study(operation, size, 13, 3);
        study.background = background;
        let result = |threads| {
            let options = SimOptions { threads, ..scattered() };
            let mut run = simulate_collective(&toy(), &study, &options, &|_, _, _| true).unwrap();
            run.alone.cost = Default::default();
            if let Some(together) = &mut run.together {
                together.cost = Default::default();
            }
            if let Some(ior) = &mut run.ior_together {
                ior.run = Default::default();
            }
            if let Some(traffic) = &mut run.traffic_together {
                traffic.cost = Default::default();
                traffic.packets_per_second = 0.0;
            }
            run
        };
        assert_eq!(result(3), result(1), "{operation}");
    }
}

#[test]
fn operations_that_do_not_fit_are_refused() {
    let error = |study: CollectiveStudy| {
        let options = SimOptions::default();
        simulate_collective(&toy(), &study, &options, &|_, _, _| true).unwrap_err().to_string()
    };
    assert!(error(study(Operation::Barrier, 0, 57, 1)).contains("56"));
    let wrong = with(Algorithm::Bruck, study(Operation::Allreduce, 8, 4, 1));
    assert!(error(wrong).contains("recursive-doubling or rabenseifner or ring"));
    let none = CollectiveStudy { iterations: 0, warm_up: 0, ..study(Operation::Barrier, 0, 4, 1) };
    assert!(error(none).contains("at most 1048576"));
}

#[test]
fn barriers_of_ior_are_messages_between_nodes() {
    let packets = |line: &str, nodes: u32, ppn: u32| {
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        let ior = Ior::parse(&arguments).unwrap().remove(0);
        let options = SimOptions::default();
        simulate_ior(&toy(), &ior, nodes, ppn, &options, &|_, _, _| true)
            .unwrap()
            .run
            .packets_delivered
    };
    let line = "-w -F -k -t 64k -b 64k";
    // A process opens and closes a file, each a request and its answer, and writes 64 KiB: a request, a
    // fetch, 16 packets of data, an answer.
    let process = 2 * 2 + 19;
    assert_eq!(packets(line, 1, 1), process);
    // Barriers before the opens, after the closes, and at the end: four nodes send two messages each.
    assert_eq!(packets(line, 4, 1), 4 * process + 3 * 2 * 4);
    assert_eq!(packets(line, 4, 2), 8 * process + 3 * 2 * 4, "one message of a node");
    // With -g also before and after the transfers.
    assert_eq!(packets(&format!("{line} -g"), 4, 1), 4 * process + 5 * 2 * 4);
    // 16 bytes of each process are gathered, in as many messages; errors are combined.
    let collective = packets("-w -k -a MPIIO -c -t 64k -b 64k", 4, 1);
    let ends = 2 * 2 + 19;
    // Each sends its counts of requests to each other.
    let counts = 4 * 3;
    assert_eq!(collective, 4 * ends + 3 * 2 * 4 + 2 * 4 + counts + 2 * 4);
}

#[test]
fn ping_pong_takes_two_messages_and_each_pair_has_its_own() {
    for nodes in [2, 5] {
        let run = run(&study(Operation::PingPong, 8, nodes, 1));
        let way = 2.0 * (0.1 + 0.02 + 0.0256);
        // With five nodes, the nodes of a pair are up to two links apart, and leave the three rounds of
        // the barrier before at different times; the iteration lasts from the first to the last.
        let most = if nodes == 2 { ROUND_US } else { ROUND_US + way + 3.0 * way / 2.0 };
        let one_way = run.one_way_seconds.unwrap() * 1e6;
        assert!(one_way > 0.999 * ROUND_US && one_way < 1.001 * most, "{nodes} nodes: {one_way}");
        assert_eq!(run.bytes_per_operation, 16 * u64::from(nodes / 2));
    }
}

#[test]
fn message_above_the_eager_limit_goes_by_rendezvous() {
    let one_way =
        |size| run(&study(Operation::PingPong, size, 2, 1)).one_way_seconds.unwrap() * 1e6;
    // Two overheads, 300 ns of links and router, the bytes at 8 GB/s.
    let moved = |size: u64| 2.0 + 0.3 + size as f64 / 8e3;
    // Eager data are copied at 8 GB/s at either end.
    let eager = |size: u64| moved(size) + 2.0 * size as f64 / 8e3;
    // The limit is 64 KiB with an envelope of 128 bytes.
    let longest = 65_536 - 128;
    assert_near(one_way(1024), eager(1024));
    assert_near(one_way(longest), eager(longest));
    assert_near(one_way(longest + 1), moved(longest + 1) + RENDEZVOUS_US);
    assert_near(one_way(1 << 20), moved(1 << 20) + RENDEZVOUS_US);
}

#[test]
fn round_of_a_collective_operation_takes_the_library_time_beyond_its_messages() {
    let mut machine = toy();
    machine.client.collective_round = Time::from_ns(700);
    let run = |study: &CollectiveStudy| {
        simulate_collective(&machine, study, &SimOptions::default(), &|_, _, _| true).unwrap()
    };
    let mean = |study: &CollectiveStudy| run(study).alone.mean_seconds * 1e6;
    assert_near(mean(&study(Operation::Barrier, 0, 2, 1)), ROUND_US + 0.7);
    // One round; 8 bytes are copied at 8 GB/s at either end, and combined.
    let allreduce = mean(&study(Operation::Allreduce, 8, 2, 1));
    assert_near(allreduce, ROUND_US + 0.7 + 3.0 * 0.001);
    // On one node there are no rounds; messages outside collective operations have none.
    assert_near(mean(&study(Operation::Barrier, 0, 1, 4)), 2.0);
    let one_way = run(&study(Operation::PingPong, 8, 2, 1)).one_way_seconds.unwrap() * 1e6;
    assert_near(one_way, ROUND_US);
}

#[test]
fn request_waits_for_a_receiver_that_comes_late() {
    let mut machine = toy();
    machine.client.mpi_overhead = Time::from_ns(20_000);
    // Node 0 receives and combines the vector of node 1, and then that of node 2, whose request has
    // been there since the beginning: the second time saves the overhead and the way of the request.
    let (overhead, way, vector) = (20.0, 0.316, 1_048_576.0 / 8e3);
    let request_and_clearance = 2.0 * (way + overhead);
    let first = overhead + request_and_clearance + 0.3 + vector + overhead + vector;
    let by_hand = 2.0 * first - (overhead + way);
    let reduce = with(Algorithm::BinomialTree, study(Operation::Reduce, 1 << 20, 3, 1));
    let run = simulate_collective(&machine, &reduce, &SimOptions::default(), &|_, _, _| true);
    let time = run.unwrap().alone.mean_seconds * 1e6;
    // Node 2 is at another router: its messages cross more links, some on detours, and the nodes leave
    // the barrier before as much apart.
    assert!(time > by_hand - 1.0 && time < by_hand + 4.0, "{time}, by hand {by_hand}");
}

#[test]
fn stream_fills_the_link_but_for_the_overhead_of_sending() {
    let run = run(&study(Operation::Stream, 1 << 20, 2, 1));
    // 64 times the overhead of sending, the rendezvous and 1 MiB at 8 GB/s; the last message's way and
    // the overhead of receiving it; the answer.
    let one = 1.0 + RENDEZVOUS_US + 1_048_576.0 / 8e3;
    let time = 64.0 * one + 0.3 + 1.0 + ROUND_US;
    assert_near(run.alone.mean_seconds * 1e6, time);
    assert_near(run.gbps, 64.0 * 1_048_576.0 / time / 1e3);
    assert_eq!(run.one_way_seconds, None);
}

#[test]
fn ring_exchange_is_two_rounds_with_both_neighbours() {
    assert_near(mean_us(&study(Operation::RingExchange, 8, 2, 1)), 2.0 * ROUND_US);
    let run = run(&study(Operation::RingExchange, 100, 10, 1));
    assert_eq!(run.bytes_per_operation, 10 * 200);
}
