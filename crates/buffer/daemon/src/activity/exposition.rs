//! Status and activity of a pool in the Prometheus text format.

use forebay_client::MountReport;
use forebay_job_script::Direction;
use forebay_metrics::MetricKind::{Counter, Gauge, Histogram};
use forebay_metrics::{Exposition, LatencySnapshot, MetricKind};

use super::status::{HostActivity, StageTotals, Status};
use forebay_control::controller::{
    EvacuationStep, InstanceStatus, Lifetime, NodeStatus, PoolStatus, StageState, StageStatus,
};
use forebay_protocol::progress::StagePhase;
use forebay_store::daemon::StoreReport;
use forebay_store::log::LogSpace;

/// The metrics of a pool. Labels: `pool`, `node` and `host` are names, `instance` is a number, and
/// `name` its label.
pub fn exposition(status: &Status) -> String {
    let mut page = Exposition::default();
    page.begin_family(
        "forebay_build_info",
        Gauge,
        "Version of this program; the value is always 1.",
    )
    .integer_sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.add_process();
    pools(&mut page, status);
    wear(&mut page, &status.nodes);
    instances(&mut page, status);
    jobs(&mut page, status);
    evacuations(&mut page, status);
    stores(&mut page, &status.activity);
    mounts(&mut page, &status.activity);
    staging(&mut page, &status.activity);
    page.into_text()
}

/// A family of gauges: name, help text, and the value of one element; `None` if unknown.
type Of<T> = (&'static str, &'static str, fn(&T) -> Option<u64>);

const POOLS: [Of<PoolStatus>; 2] = [
    ("forebay_pool_size_bytes", "Capacity of the pool's nodes in service.", |pool| {
        Some(pool.quantity.saturating_mul(pool.granularity.0))
    }),
    ("forebay_pool_free_bytes", "Capacity that is not allocated, of nodes in service.", |pool| {
        Some(pool.free.saturating_mul(pool.granularity.0))
    }),
];

const NODES: [Of<NodeStatus>; 5] = [
    (
        "forebay_node_online",
        "1 if the storage node is connected to the controller, else 0.",
        |node| Some(node.online.into()),
    ),
    ("forebay_node_drained", "1 if the storage node is taken out of service, else 0.", |node| {
        Some(node.drained.into())
    }),
    (
        "forebay_node_given_up",
        "1 if the storage node was given up and its data are lost, else 0.",
        |node| Some(node.forgotten.into()),
    ),
    ("forebay_node_granules", "Capacity of the storage node in granules.", |node| {
        Some(node.granules)
    }),
    ("forebay_node_granules_used", "Allocated granules of the storage node.", |node| {
        Some(node.used)
    }),
];

/// Bytes written to the flash of the nodes, which wears it out.
fn wear(page: &mut Exposition, nodes: &[NodeStatus]) {
    page.begin_family(
        "forebay_node_written_bytes_total",
        Counter,
        "Bytes written to the storage node's flash since its directory was taken into use.",
    );
    for node in nodes {
        page.integer_sample(&[("node", &node.name), ("pool", &node.pool)], node.written.0);
    }
}

fn pools(page: &mut Exposition, status: &Status) {
    for (name, help, value) in POOLS {
        page.begin_family(name, Gauge, help);
        for pool in &status.pools {
            number(page, &[("pool", &pool.name)], value(pool));
        }
    }
    for (name, help, value) in NODES {
        page.begin_family(name, Gauge, help);
        for node in &status.nodes {
            let labels = [("node", node.name.as_str()), ("pool", &node.pool)];
            number(page, &labels, value(node));
        }
    }
}

/// Adds a sample to the current family, if its value is known.
fn number(page: &mut Exposition, labels: &[(&str, &str)], value: Option<u64>) {
    if let Some(value) = value {
        page.integer_sample(labels, value);
    }
}

/// A family of gauges of instances, computed from the status and the used bytes and inodes.
type OfInstance =
    (&'static str, &'static str, fn(&InstanceStatus, Option<(u64, u64)>) -> Option<u64>);

const INSTANCES: [OfInstance; 4] = [
    ("forebay_instance_capacity_bytes", "Capacity of the instance.", |instance, _| {
        Some(instance.capacity.0)
    }),
    (
        "forebay_instance_used_bytes",
        "Space in use, including space reserved for writers.",
        |_, used| used.map(|(bytes, _)| bytes),
    ),
    ("forebay_instance_inodes_used", "Inodes of the instance in use.", |_, used| {
        used.map(|(_, inodes)| inodes)
    }),
    ("forebay_instance_intact", "1 if no data of the instance are lost, else 0.", |instance, _| {
        Some(instance.intact.into())
    }),
];

fn instances(page: &mut Exposition, status: &Status) {
    for (name, help, value) in INSTANCES {
        page.begin_family(name, Gauge, help);
        for instance in &status.instances {
            let id = instance.id.0.to_string();
            let labels = [("instance_id", id.as_str()), ("name", &instance.label)];
            number(page, &labels, value(instance, status.instance_usage(instance.id)));
        }
    }
}

fn jobs(page: &mut Exposition, status: &Status) {
    page.begin_family(
        "forebay_sessions",
        Gauge,
        "Sessions in the pool, by lifetime of the instance.",
    );
    for lifetime in [Lifetime::Job, Lifetime::Persistent] {
        let of = status.sessions.iter().filter(|s| s.lifetime == lifetime);
        page.integer_sample(&[("lifetime", lifetime.as_str())], of.count() as u64);
    }
    page.begin_family("forebay_stages", Gauge, "Stages of the current sessions, by state.");
    for direction in [Direction::In, Direction::Out] {
        for (word, is) in STATES {
            let of = |stage: &&StageStatus| stage.direction == direction && is(&stage.state);
            let count = status.stages.iter().filter(of).count() as u64;
            page.integer_sample(&[("direction", direction.name()), ("state", word)], count);
        }
    }
    page.begin_family("forebay_stages_running", Gauge, "Running stages, by phase.");
    for direction in [Direction::In, Direction::Out] {
        for phase in StagePhase::ALL {
            let of = |stage: &&StageStatus| {
                let here = stage.direction == direction && stage.progress.phase == phase;
                here && stage.state == StageState::Running
            };
            let count = status.stages.iter().filter(of).count() as u64;
            let phase = phase_label(phase);
            let labels = [("direction", direction.name()), ("phase", &*phase)];
            page.integer_sample(&labels, count);
        }
    }
}

/// Instances with data on drained nodes from which instances are to move.
fn evacuations(page: &mut Exposition, status: &Status) {
    let of_step = |step| status.evacuations.iter().filter(move |known| known.step == step);
    page.begin_family(
        "forebay_evacuating_instances",
        Gauge,
        "Instances with data on storage nodes that are being drained, by what they wait for.",
    );
    for step in EvacuationStep::ALL {
        page.integer_sample(&[("state", step.as_str())], of_step(step).count() as u64);
    }
    page.begin_family(
        "forebay_evacuating_bytes",
        Gauge,
        "Bytes allocated to these instances on storage nodes that are being drained.",
    );
    for step in EvacuationStep::ALL {
        let bytes = of_step(step).map(|known| known.allocated.0).fold(0, u64::saturating_add);
        page.integer_sample(&[("state", step.as_str())], bytes);
    }
    page.begin_family(
        "forebay_evacuated_bytes",
        Gauge,
        "Bytes that the copies of moving instances have copied so far.",
    );
    for moving in of_step(EvacuationStep::Copying) {
        let id = moving.instance.0.to_string();
        let labels = [("instance_id", id.as_str()), ("name", &moving.label)];
        page.integer_sample(&labels, moving.progress.bytes);
    }
}

type Is = fn(&StageState) -> bool;

const STATES: [(&str, Is); 7] = [
    ("waiting", |s| matches!(s, StageState::Waiting)),
    ("queued", |s| matches!(s, StageState::Queued)),
    ("running", |s| matches!(s, StageState::Running)),
    ("cancelling", |s| matches!(s, StageState::Cancelling)),
    ("done", |s| matches!(s, StageState::Done)),
    ("failed", |s| matches!(s, StageState::Failed(_))),
    ("cancelled", |s| matches!(s, StageState::Cancelled)),
];

fn phase_label(phase: StagePhase) -> String {
    phase.words().replace(' ', "_")
}

/// A family with one sample per storage daemon: name, type, help text and value.
type OfStore = (&'static str, MetricKind, &'static str, fn(&StoreReport) -> Option<u64>);

const STORES: [OfStore; 16] = [
    (
        "forebay_store_received_bytes_total",
        Counter,
        "Bytes received from the storage daemon's sockets.",
        |store| Some(store.received),
    ),
    (
        "forebay_store_sent_bytes_total",
        Counter,
        "Bytes sent to the storage daemon's sockets.",
        |store| Some(store.sent),
    ),
    (
        "forebay_store_log_records_total",
        Counter,
        "Records written to the storage daemon's log.",
        |store| Some(store.records),
    ),
    (
        "forebay_store_log_bytes_total",
        Counter,
        "Bytes of records written to the storage daemon's log.",
        |store| Some(store.record_bytes),
    ),
    (
        "forebay_store_delayed_requests_total",
        Counter,
        "Requests that were delayed because their users exceed a rate.",
        |store| Some(store.delayed_requests),
    ),
    (
        "forebay_store_damaged_objects",
        Gauge,
        "Data objects that do not match their checksums, as reads and scrubs have found since the \
         start of the storage daemon.",
        |store| Some(store.damaged_objects),
    ),
    (
        "forebay_store_scrubs_total",
        Counter,
        "Regular scrubs that have compared all data objects with their checksums.",
        |store| Some(store.scrub.completed),
    ),
    (
        "forebay_store_scrubbed_bytes_total",
        Counter,
        "Bytes that regular scrubs have found intact.",
        |store| Some(store.scrub.bytes),
    ),
    (
        "forebay_store_log_full",
        Gauge,
        "Log space: 0 normal; 1 disk full, only changes that free space are accepted; 2 exhausted, \
         only reads are served.",
        |store| {
            Some(match store.gauges.as_ref()?.log_space {
                LogSpace::Normal => 0,
                LogSpace::ReserveOnly => 1,
                LogSpace::Exhausted => 2,
            })
        },
    ),
    (
        "forebay_store_sessions",
        Gauge,
        "Sessions of clients and administrators with the storage daemon.",
        |store| Some(store.gauges.as_ref()?.sessions),
    ),
    (
        "forebay_store_connections",
        Gauge,
        "Connections to the storage daemon, including data connections.",
        |store| Some(store.gauges.as_ref()?.connections),
    ),
    (
        "forebay_store_data_connections",
        Gauge,
        "Data connections to the storage daemon, each with a thread.",
        |store| Some(store.gauges.as_ref()?.data_connections),
    ),
    (
        "forebay_store_refused_connections_total",
        Counter,
        "Connections that were refused, or closed in the handshake: wrong or missing credentials, \
         errors of MUNGE, limits of users.",
        |store| Some(store.refused_connections),
    ),
    (
        "forebay_store_failed_checkpoints_total",
        Counter,
        "Checkpoints that could not be written, so that the log grows.",
        |store| Some(store.failed_checkpoints),
    ),
    (
        "forebay_store_metadata_bytes",
        Gauge,
        "Memory that the metadata of all instances, and sessions, take.",
        |store| Some(store.gauges.as_ref()?.metadata_bytes),
    ),
    (
        "forebay_store_metadata_budget_bytes",
        Gauge,
        "The budget for this memory; operations that would exceed it get ENOSPC.",
        |store| Some(store.gauges.as_ref()?.metadata_budget_bytes),
    ),
];

fn stores(page: &mut Exposition, hosts: &[HostActivity]) {
    let stores = || hosts.iter().filter_map(|host| Some((&*host.host, host.store.as_ref()?)));
    page.begin_family(
        "forebay_store_request_errors_total",
        Counter,
        "Requests answered with an error, including lookups of missing names.",
    );
    for (host, store) in stores() {
        for (kind, requests) in &store.requests {
            page.integer_sample(&[("host", host), ("kind", kind)], requests.failed);
        }
    }
    page.begin_family(
        "forebay_store_request_duration_seconds",
        Histogram,
        "Time from the arrival of a request until its reply was passed to the socket.",
    );
    for (host, store) in stores() {
        for (kind, requests) in &store.requests {
            page.histogram_samples(&[("host", host), ("kind", kind)], &requests.latency);
        }
    }
    for (name, kind, help, value) in STORES {
        page.begin_family(name, kind, help);
        for (host, store) in stores() {
            number(page, &[("host", host)], value(store));
        }
    }
    page.begin_family(
        "forebay_store_request_delay_seconds_total",
        Counter,
        "Time for which requests were delayed because their users exceed a rate.",
    );
    for (host, store) in stores() {
        page.float_sample(&[("host", host)], store.delay_us as f64 / 1e6);
    }
    type Durations = fn(&StoreReport) -> &LatencySnapshot;
    let durations: [(_, _, Durations); 2] = [
        (
            "forebay_store_log_sync_duration_seconds",
            "Duration of log syncs; one sync serves all waiting requests.",
            |store| &store.syncs,
        ),
        (
            "forebay_store_checkpoint_duration_seconds",
            "Time to write a checkpoint, which frees segments of the log.",
            |store| &store.checkpoints,
        ),
    ];
    for (name, help, of) in durations {
        page.begin_family(name, Histogram, help);
        for (host, store) in stores() {
            page.histogram_samples(&[("host", host)], of(store));
        }
    }
}

fn mounts(page: &mut Exposition, hosts: &[HostActivity]) {
    let mounts: Vec<(&str, String, &MountReport)> = hosts
        .iter()
        .flat_map(|host| host.mounts.iter().map(move |mount| (host, mount)))
        .map(|(host, (instance, mount))| (&*host.host, instance.0.to_string(), mount))
        .collect();
    page.begin_family(
        "forebay_mount_operation_duration_seconds",
        Histogram,
        "Duration of operations on the mount that the kernel did not answer from its cache.",
    );
    for (host, instance, mount) in &mounts {
        let done = mount.operations.iter();
        // Most kinds never occur on a mount.
        for (kind, latency) in done.filter(|(_, l)| **l != LatencySnapshot::default()) {
            let labels = [("host", *host), ("instance_id", instance), ("kind", kind)];
            page.histogram_samples(&labels, latency);
        }
    }
    type Total = fn(&MountReport) -> u64;
    let totals: [(_, _, Total); 2] = [
        ("forebay_mount_written_bytes_total", "Bytes written through the mount.", |m| m.written),
        (
            "forebay_mount_read_requested_bytes_total",
            "Bytes requested by reads through the mount, without passthrough.",
            |m| m.read_requested,
        ),
    ];
    for (name, help, total) in totals {
        page.begin_family(name, Counter, help);
        for (host, instance, mount) in &mounts {
            page.integer_sample(&[("host", *host), ("instance_id", instance)], total(mount));
        }
    }
}

fn staging(page: &mut Exposition, hosts: &[HostActivity]) {
    type Count = fn(&StageTotals) -> u64;
    let families: [(_, _, Count); 5] = [
        ("forebay_staged_files_total", "Staged files and links.", |s| s.files),
        ("forebay_staged_bytes_total", "Staged bytes.", |s| s.bytes),
        (
            "forebay_staged_read_back_bytes_total",
            "Staged bytes that were read back and verified.",
            |s| s.read_back,
        ),
        ("forebay_stages_done_total", "Stages that completed successfully.", |s| s.done),
        ("forebay_stages_failed_total", "Stages that failed or were cancelled.", |s| s.failed),
    ];
    // Agents do not stage, and may share a host with a storage node.
    let stagers = || {
        hosts.iter().filter(|host| host.store.is_some()).flat_map(|host| {
            let both = [(Direction::In, &host.staged_in), (Direction::Out, &host.staged_out)];
            both.map(|(direction, staged)| (&*host.host, direction.name(), staged))
        })
    };
    for (name, help, count) in families {
        page.begin_family(name, Counter, help);
        for (host, direction, staged) in stagers() {
            page.integer_sample(&[("host", host), ("direction", direction)], count(staged));
        }
    }
    page.begin_family(
        "forebay_stage_phase_seconds_total",
        Counter,
        "Time that stages spent in each phase, counted when the phase ends.",
    );
    for (host, direction, staged) in stagers() {
        for phase in StagePhase::ALL {
            let phase_label = phase_label(phase);
            let labels = [("host", host), ("direction", direction), ("phase", &phase_label)];
            page.float_sample(&labels, staged.times.of(phase).as_secs_f64());
        }
    }
}
