#![allow(dead_code, missing_docs)]
//! Result documents with every field filled in, for tests of what is made of them. The numbers
//! are invented; nothing is compared with them.

use forebay_machine::estimate::{Estimate, Replication};
use forebay_machine::observe::{ClassDelays, Delays, Observed, ServerDelays};
use forebay_machine::results::*;

fn class(name: &str, links: u64, mean: f64, max: f64) -> ClassUse {
    ClassUse {
        class: name.to_string(),
        links,
        bytes: (mean * 1e12) as u64,
        mean_utilisation: mean,
        max_utilisation: max,
        stall_seconds: mean * 3.0,
        max_queue_bytes: 65536,
    }
}

pub fn classes(load: f64) -> Vec<ClassUse> {
    vec![
        class("node", 43_000, 0.2 * load, 0.95 * load),
        class("rank-1", 82_080, 0.3 * load, 0.6 * load),
        class("rank-2", 27_360, 0.1 * load, 0.3 * load),
        class("global", 12_768, 0.15 * load, 0.8 * load),
    ]
}

pub fn heat(groups: usize, senders: usize) -> Vec<Vec<u64>> {
    (0..groups)
        .map(|i| {
            (0..groups)
                .map(|j| match i < senders {
                    true if i == j => 5_000_000_000,
                    true => 40_000_000 + 1_000_000 * ((i * 7 + j * 13) % 29) as u64,
                    false => 0,
                })
                .collect()
        })
        .collect()
}

pub fn series(top: f64) -> Series {
    let n = 60;
    let seconds: Vec<f64> = (1..=n).map(|i| i as f64 * 1e-3).collect();
    let shape = |f: f64| -> Vec<f64> {
        (0..n)
            .map(|i| f * (1.0 - (-(i as f64) / 8.0).exp()) * if i > 52 { 0.5 } else { 1.0 })
            .collect()
    };
    Series {
        seconds,
        columns: vec![
            ("write_GBps".to_string(), shape(top)),
            ("node".to_string(), shape(0.5)),
            ("rank-1".to_string(), shape(0.2)),
            ("rank-2".to_string(), shape(0.18)),
            ("global".to_string(), shape(0.4)),
        ],
    }
}

fn limit(resource: &str) -> Limit {
    let evidence = ["client", "local-link", "global-link", "node-link", "server", "ssd"]
        .into_iter()
        .map(|name| ResourceUse {
            resource: name.to_string(),
            busiest: format!("{name} of <node 17>"),
            peak_utilisation: if name == resource { 0.98 } else { 0.4 },
            mean_utilisation: if name == resource { 0.91 } else { 0.2 },
            time_share: if name == resource { 0.6 } else { 0.08 },
        })
        .collect();
    Limit {
        resource: resource.to_string(),
        because: format!(
            "the busiest {resource} was busy 98% of the time & nothing else above 40%"
        ),
        evidence,
    }
}

pub fn phase(access: &str, iteration: u32, nodes: u32, gbps: f64, limited: &str) -> Phase {
    let bytes = u64::from(nodes) * (64 << 20);
    let seconds = bytes as f64 / gbps / 1e9;
    Phase {
        access: access.to_string(),
        iteration,
        bytes,
        operations: u64::from(nodes) * 64,
        seconds,
        open_seconds: seconds * 0.02,
        transfer_seconds: seconds * 0.97,
        close_seconds: seconds * 0.01,
        gbps,
        steady_gbps: Some(gbps * 1.03),
        middle_gbps: None,
        slowest_rank_gbps: gbps,
        acknowledged_node_gbps: NodeRates {
            mean: gbps / f64::from(nodes) * 1.05,
            min: gbps / f64::from(nodes),
            p5: gbps / f64::from(nodes) * 1.01,
            p50: gbps / f64::from(nodes) * 1.06,
            p95: gbps / f64::from(nodes) * 1.08,
            max: gbps / f64::from(nodes) * 1.1,
        },
        iops: f64::from(nodes) * 64.0 / seconds,
        operation_seconds: Spread { mean: 5e-4, min: 4e-4, p50: 5e-4, p99: 8e-4, max: 1e-3 },
        least_mean_seconds: 4.5e-4,
        limit: limit(limited),
        links: classes(gbps / 1300.0),
        heat: heat(57, (nodes as usize).div_ceil(360)),
        series: series(gbps),
        warnings: vec!["few transfers".to_string()],
        each_link: Vec::new(),
    }
}

pub fn run_cost() -> RunCost {
    RunCost {
        wall_seconds: 3.2,
        simulated_seconds: 0.06,
        events: 12_345_678,
        packets_delivered: 1_234_567,
        threads: 2,
        peak_rss_bytes: 300 << 20,
    }
}

pub fn point(nodes: u32) -> IorPoint {
    let write = (f64::from(nodes) * 2.0).min(1190.0);
    let read = (f64::from(nodes) * 2.6).min(1600.0);
    let limited = match nodes {
        0..=256 => "client",
        257..=512 => "local-link",
        _ => "ssd",
    };
    IorPoint {
        nodes,
        processes: nodes,
        fidelity: "flow".into(),
        left_out: vec!["single packets".into()],
        write_gbps: Some(write),
        read_gbps: Some(read),
        write_acknowledged_node_gbps: Some(write / f64::from(nodes) * 1.05),
        read_acknowledged_node_gbps: Some(read / f64::from(nodes) * 1.05),
        limit: limited.to_string(),
        phases: vec![
            phase("write", 0, nodes, write, limited),
            phase("read", 0, nodes, read, limited),
            phase("write", 1, nodes, write * 0.99, limited),
            phase("read", 1, nodes, read * 0.99, limited),
        ],
        run: run_cost(),
        replication: Some(replication("write_GBps", "GB/s", write)),
        logged: Some(logged(phase("write", 0, nodes, write, limited))),
        delays: Some(delays()),
        observed: Observed::default(),
    }
}

fn logged(phase: Phase) -> LoggedWrites {
    LoggedWrites {
        flush: "close".into(),
        past_log: false,
        seconds: 0.5,
        complete_seconds: 0.75,
        gbps: 12.5,
        plain_seconds: 2.0,
        gain: 4.0,
        log: Some(phase.clone()),
        log_read: Some(phase.clone()),
        file_write: Some(phase),
    }
}

fn delays() -> Delays {
    let seconds = vec![vec![0.0, 0.25], vec![0.5, 0.125]];
    Delays {
        jobs: vec!["traffic".into(), "ior".into()],
        network: vec![ClassDelays {
            class: "rank-1".into(),
            seconds: seconds.clone(),
            total_seconds: vec![0.25, 0.625],
            passages: vec![1_000, 2_000],
        }],
        servers: vec![ServerDelays { node: 12, seconds }],
    }
}

pub fn replication(name: &str, unit: &str, mean: f64) -> Replication {
    let values = vec![mean * 0.99, mean, mean * 1.01];
    let estimates = Estimate::of(name, unit, values).into_iter().collect();
    Replication { seeds: vec![1, 2, 3], confidence: 0.95, estimates }
}

pub fn study() -> IorStudy {
    IorStudy {
        published: Vec::new(),
        schema: SCHEMA,
        kind: "sim ior".to_string(),
        version: "0.0.0".to_string(),
        machine: "trinity-phase2".to_string(),
        ior: ["-a", "POSIX", "-F", "-i", "2", "-t", "1m", "-b", "64m"].map(String::from).to_vec(),
        ppn: 1,
        file_system: "burst-buffer".into(),
        burst_buffers: 230,
        seed: 1,
        routing: "progressive-adaptive".to_string(),
        placement: "contiguous".to_string(),
        points: (0..14).map(|i| point(1 << i)).collect(),
    }
}

pub fn traffic() -> TrafficRun {
    TrafficRun {
        schema: SCHEMA,
        kind: "sim traffic".to_string(),
        version: "0.0.0".to_string(),
        fidelity: "packet".into(),
        left_out: Vec::new(),
        machine: "theta".to_string(),
        pattern: "uniform".to_string(),
        routing: "ugal-l".to_string(),
        seed: 1,
        nodes: 4392,
        message_bytes: 4096,
        messages: 20,
        messages_delivered: 87_840,
        bytes_delivered: 359_792_640,
        packets_per_second: 900_000.0,
        startup_seconds: 0.02,
        cost: RunCost {
            wall_seconds: 0.1,
            simulated_seconds: 5e-5,
            events: 600_000,
            packets_delivered: 87_840,
            threads: 1,
            peak_rss_bytes: 90 << 20,
        },
        offered_load: 0.3,
        state: "steady".to_string(),
        warm_up_seconds: Some(4e-6),
        window_seconds: [1e-5, 3.5e-5],
        window_offered_load: 0.299,
        accepted_load: 0.298,
        run_load: 0.21,
        backlog_bytes: [40_000, 41_000],
        warnings: vec!["too short".to_string()],
        hops_mean: 3.4,
        hops_histogram: vec![10, 500, 9_000, 30_000, 40_000, 8_000, 330],
        nonminimal_share: 0.11,
        latency_ns: Some(LatencyNs {
            mean: 2100.0,
            min: 900.0,
            p50: 1900.0,
            p90: 3000.0,
            p99: 5200.0,
            p999: 8000.0,
            max: 12_000.0,
        }),
        links: classes(0.5),
        heat: heat(12, 12),
        series: Series {
            seconds: (1..=20).map(|i| i as f64 * 2.5e-6).collect(),
            columns: vec![
                ("accepted_load".to_string(), vec![0.3; 20]),
                ("global".to_string(), vec![0.1; 20]),
            ],
        },
        replication: Some(replication("accepted_load", "", 0.298)),
        delays: Some(delays()),
        observed: Observed::default(),
        saturation: Some(SaturationSearch {
            accepted: 0.6,
            refused: Some(0.61),
            steps: vec![SaturationStep {
                offered_load: 0.6,
                accepted_load: 0.598,
                state: "steady".to_string(),
                latency_mean_ns: Some(4_000.0),
            }],
        }),
        each_link: Vec::new(),
    }
}

fn collective_times(mean: f64) -> CollectiveTimes {
    CollectiveTimes {
        mean_seconds: mean,
        min_seconds: 0.8 * mean,
        p50_seconds: 0.9 * mean,
        p99_seconds: 1.5 * mean,
        max_seconds: 1.6 * mean,
        process_mean_seconds: 0.7 * mean,
        iteration_seconds: (0..50).map(|i| mean * (0.8 + 0.4 * f64::from(i % 7) / 6.0)).collect(),
        messages: 1_000_000,
        bytes: 8_000_000,
        links: classes(0.1),
        series: series(0.3),
        each_link: Vec::new(),
        cost: traffic().cost,
    }
}

pub fn collective() -> CollectiveRun {
    CollectiveRun {
        schema: SCHEMA,
        kind: "sim collective".to_string(),
        version: "0.0.0".to_string(),
        machine: "theta".to_string(),
        operation: "allreduce".to_string(),
        algorithm: "recursive-doubling".to_string(),
        rounds: 7,
        size_bytes: 8,
        nodes: 128,
        processes: 8192,
        placement: "contiguous".to_string(),
        routing: "ugal-l".to_string(),
        seed: 1,
        bytes_per_operation: 7168,
        one_way_seconds: None,
        gbps: 0.239,
        background: Some("uniform traffic of 512 nodes".to_string()),
        alone: collective_times(3e-5),
        together: Some(collective_times(5e-5)),
        mean_ratio: Some(5.0 / 3.0),
        p99_ratio: Some(5.0 / 3.0),
        warnings: vec!["too short".to_string()],
        traffic_together: Some(traffic()),
        ior_together: Some(point(512)),
        delays: None,
        observed: Default::default(),
        replication: Some(replication("mean_seconds", "s", 3e-5)),
    }
}

pub fn darshan() -> DarshanRun {
    let part = DarshanPart {
        ior: ["-a", "POSIX", "-w", "-F", "-t", "1048576", "-b", "8388608"]
            .map(String::from)
            .to_vec(),
        nodes: 4,
        processes: 128,
        bytes: 1 << 30,
        operations: 1024,
        simulated_bytes: 1 << 30,
        seconds: 0.6,
        slowest_rank_seconds: 0.5,
        limit: "ssd".into(),
        because: "busy".into(),
        fidelity: "flow".into(),
    };
    let phase = DarshanPhase {
        access: "write".into(),
        files: "file per process".into(),
        begin_seconds: 10.0,
        end_seconds: 12.0,
        processes: 128,
        file_count: 128,
        bytes: (1 << 30) + 100,
        operations: 1025,
        left_out_bytes: 100,
        measured_seconds: 1.5,
        seconds: 0.6,
        slowest_rank_seconds: 0.5,
        limit: "ssd".into(),
        parts: vec![part],
    };
    DarshanRun {
        schema: SCHEMA,
        kind: "sim darshan".into(),
        version: "0.0.0".into(),
        machine: "trinity".into(),
        log: "solve.darshan".into(),
        program: "./solve <input>".into(),
        nodes: 4,
        ppn: 32,
        processes: 128,
        run_seconds: 60.0,
        has_traces: true,
        file_system: "burst-buffer".into(),
        burst_buffers: 16,
        seed: 1,
        routing: "ugal-l".into(),
        placement: "contiguous".into(),
        bytes: (1 << 30) + 100,
        measured_seconds: 1.5,
        measured_gbps: Some(0.71),
        seconds: 0.6,
        slowest_rank_seconds: 0.5,
        slowest_rank_gbps: Some(2.1),
        write_seconds: Some(0.5),
        read_seconds: None,
        predicted_run_seconds: Some(59.0),
        limit: "ssd".into(),
        phases: vec![phase],
        warnings: vec!["the log is incomplete".into()],
        left_out: vec!["packets".into()],
        published: Vec::new(),
        run: run_cost(),
        replication: Some(replication("seconds", "s", 0.6)),
    }
}

pub fn interference() -> InterferenceRun {
    InterferenceRun {
        schema: SCHEMA,
        kind: "sim interference".to_string(),
        version: "0.0.0".to_string(),
        fidelity: "packet".into(),
        machine: "trinity".to_string(),
        ior_placement: "contiguous".to_string(),
        traffic_placement: "random-groups".to_string(),
        ior_alone: point(512),
        ior_together: point(256),
        traffic_alone: traffic(),
        traffic_together: traffic(),
        ior_rate_ratio: 0.52,
        traffic_latency_ratio: Some(1.7),
        replication: Some(replication("ior_rate_ratio", "", 0.52)),
    }
}

pub fn validation_row() -> forebay_app::validate::verdict::Row {
    use forebay_app::validate::{cases, published, verdict};
    let table = published::all().expect("the published table");
    let mut cases = cases::all().expect("cases").into_iter();
    let case = cases.find(|c| c.id == "trinity-client").expect("the case");
    let points: Vec<_> =
        case.runs().into_iter().map(|run| (run.clone(), vec![point(run.nodes)])).collect();
    let check = &case.check[0];
    let published = published::measurement(&check.row, &table).expect("a row");
    verdict::compare(&case, check, published, &[], &points)
}
