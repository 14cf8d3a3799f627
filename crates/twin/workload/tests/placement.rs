//! Job placement: free nodes only, deterministic, of the named shape.

use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_workload::placement::{Placement, Placer};
use proptest::prelude::*;
use std::collections::HashSet;

fn theta() -> Machine {
    Machine::load("theta").unwrap_or_else(|e| panic!("{e}"))
}

/// The number of distinct locations of the nodes, and of changes of location in rank order.
fn spread(job: &[u32], location_of: impl Fn(u32) -> u32) -> (usize, usize) {
    let locations: Vec<u32> = job.iter().map(|&n| location_of(n)).collect();
    let changes = locations.windows(2).filter(|w| w[0] != w[1]).count();
    (locations.iter().collect::<HashSet<_>>().len(), changes)
}

#[test]
fn names_parse_to_their_placements() {
    for placement in Placement::ALL {
        assert_eq!(placement.to_string().parse(), Ok(placement));
    }
    let error = "random".parse::<Placement>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown placement `random`; use one of contiguous, random-nodes, random-routers, random-groups"
    );
}

#[test]
fn contiguous_jobs_are_consecutive() {
    let machine = theta();
    let compute = machine.nodes_of_kind(NodeKind::Compute);
    let mut placer = Placer::new(&machine, 1);
    assert_eq!(placer.place_job(100, Placement::Contiguous).unwrap(), compute[..100]);
    assert_eq!(placer.place_job(50, Placement::Contiguous).unwrap(), compute[100..150]);
    assert_eq!(placer.free_nodes(), compute.len() as u32 - 150);
}

#[test]
fn contiguous_job_takes_a_run_or_the_lowest_free_nodes() {
    let machine = theta();
    let compute = machine.nodes_of_kind(NodeKind::Compute);
    let mut placer = Placer::new(&machine, 1);
    let scattered = placer.place_job(compute.len() as u32 / 100, Placement::RandomNodes).unwrap();
    let job = placer.place_job(32, Placement::Contiguous).unwrap();
    let first = compute.iter().position(|&n| n == job[0]).unwrap();
    assert_eq!(job, compute[first..first + 32], "a run without the {} taken", scattered.len());
    // Without a run of that length, the job gets the lowest free nodes.
    let mut placer = Placer::new(&machine, 1);
    let taken: HashSet<u32> = placer
        .place_job(compute.len() as u32 / 2, Placement::RandomNodes)
        .unwrap()
        .into_iter()
        .collect();
    let free: Vec<u32> = compute.iter().copied().filter(|n| !taken.contains(n)).collect();
    assert_eq!(placer.place_job(1000, Placement::Contiguous).unwrap(), free[..1000]);
}

#[test]
fn random_nodes_are_in_all_groups() {
    let machine = theta();
    let job = Placer::new(&machine, 1).place_job(400, Placement::RandomNodes).unwrap();
    let (groups, changes) = spread(&job, |n| machine.group_of(n));
    assert_eq!(groups as u32, machine.network.groups);
    assert!(changes > 300, "neighbours in rank are in other groups: {changes}");
}

#[test]
fn random_routers_are_filled_one_by_one() {
    let machine = theta();
    let router = |n: u32| machine.nodes[n as usize].router;
    let job = Placer::new(&machine, 1).place_job(400, Placement::RandomRouters).unwrap();
    let (routers, changes) = spread(&job, router);
    assert_eq!(changes + 1, routers, "each router's nodes are together");
    assert!(routers <= 120, "{routers} routers for 400 nodes");
    assert!(spread(&job, |n| machine.group_of(n)).0 > 5);
    assert!(!job.is_sorted());
}

#[test]
fn random_groups_are_filled_one_by_one() {
    let machine = theta();
    let mut first = HashSet::new();
    for seed in 0..10 {
        let job = Placer::new(&machine, seed).place_job(1000, Placement::RandomGroups).unwrap();
        let (groups, changes) = spread(&job, |n| machine.group_of(n));
        assert_eq!(changes + 1, groups);
        assert!(groups <= 4, "{groups}");
        first.insert(machine.group_of(job[0]));
    }
    assert!(first.len() > 3, "independent of the seed: {first:?}");
}

#[test]
fn full_machine_reports_free_nodes() {
    let machine = theta();
    let compute = machine.nodes_of_kind(NodeKind::Compute).len() as u32;
    let mut placer = Placer::new(&machine, 1);
    assert!(
        placer
            .place_job(0, Placement::Contiguous)
            .unwrap_err()
            .to_string()
            .contains("at least one")
    );
    placer.place_job(compute - 10, Placement::RandomRouters).unwrap();
    for placement in Placement::ALL {
        let error = placer.place_job(11, placement).unwrap_err().to_string();
        let right =
            format!("theta has {compute} compute nodes, of which 10 are free; the job requests 11");
        assert_eq!(error, right);
    }
    assert_eq!(placer.place_job(10, Placement::RandomGroups).unwrap().len(), 10);
    assert_eq!(placer.free_nodes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn jobs_are_disjoint_and_reproducible(
        seed: u64, jobs in prop::collection::vec((1_u32..900, 0_usize..4), 1..8),
    ) {
        let machine = theta();
        let run = || {
            let mut placer = Placer::new(&machine, seed);
            jobs.iter()
                .filter_map(|&(nodes, how)| {
                    let placed = placer.place_job(nodes, Placement::ALL[how]).ok()?;
                    Some((nodes, placed))
                })
                .collect::<Vec<_>>()
        };
        let placed = run();
        prop_assert_eq!(&placed, &run());
        let mut seen = HashSet::new();
        for (nodes, job) in &placed {
            prop_assert_eq!(job.len() as u32, *nodes);
            for &node in job {
                prop_assert!(seen.insert(node), "node {} twice", node);
                prop_assert_eq!(machine.nodes[node as usize].kind, NodeKind::Compute);
            }
        }
    }
}
