//! The controller's work for one report does not grow with the number of other hosts.

use crate::harness;
use forebay_control::controller::{
    Controller, ControllerEffect, ControllerInput, Request, RequestEnvelope, RequestId, Settings,
    Setup,
};
use forebay_control::messages::{
    ComputeCommand, ComputeReport, Report, StateStamp, StorageCommand, StorageReport, UnixMillis,
};
use forebay_control::records::{Change, StoredRecord};
use forebay_job_script::JobScript;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use harness::ROOT;
use std::collections::BTreeMap;

/// A controller with one storage node; it has mounted nothing yet.
struct Pool {
    controller: Controller,
    records: BTreeMap<(String, u128), Vec<u8>>,
    sequence: u64,
}

impl Pool {
    fn step(&mut self, input: ControllerInput) -> Vec<ControllerEffect> {
        let effects = self.controller.step(UnixMillis(1_000), input);
        for effect in &effects {
            if let ControllerEffect::Persist(changes) = effect {
                self.persist(changes);
            }
        }
        effects
    }

    fn persist(&mut self, changes: &[Change]) {
        for change in changes {
            let key = (change.table.to_owned(), change.key);
            match change.value.clone() {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
    }

    fn request(&mut self, id: u128, request: Request) -> Vec<ControllerEffect> {
        let envelope = RequestEnvelope { id: RequestId(id), caller: ROOT, request };
        self.step(ControllerInput::Request(Box::new(envelope)))
    }

    fn storage_report(&mut self, body: StorageReport) -> Vec<ControllerEffect> {
        self.sequence += 1;
        let sequence = self.sequence;
        self.step(ControllerInput::Report(Report::Storage {
            node: NodeId(0),
            disk: 1,
            sequence,
            body,
        }))
    }

    fn host_report(&mut self, host: &str, body: ComputeReport) -> Vec<ControllerEffect> {
        self.sequence += 1;
        let (host, sequence) = (host.to_owned(), self.sequence);
        self.step(ControllerInput::Report(Report::Compute { host, sequence, body }))
    }

    /// A pool with a job that is being mounted on this many hosts, and the plans that these get.
    fn mounting(hosts: usize) -> (Pool, Vec<(String, ComputeCommand)>) {
        let controller = Controller::restore(Settings::default(), Vec::new()).unwrap();
        let mut pool = Pool { controller, records: BTreeMap::new(), sequence: 0 };
        pool.request(
            1,
            Request::AddPool {
                name: "fast".into(),
                granularity: Bytes(1 << 30),
                equalize_fragments: false,
            },
        );
        pool.request(
            2,
            Request::AddNode {
                name: "bb0".into(),
                pool: "fast".into(),
                granules: 10,
                address: Some("bb0:7511".into()),
            },
        );
        pool.storage_report(StorageReport::Heartbeat {
            fragments: Vec::new(),
            written: Bytes(0),
            obeyed: StateStamp::default(),
            copies_instances: true,
            shares_stages: false,
        });
        let script = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n";
        let effects = pool.request(
            3,
            Request::Setup {
                token: "7".into(),
                owner: ROOT,
                creator: "test".into(),
                setup: Setup::from_script(&JobScript::parse(script, None).unwrap()),
            },
        );
        let fragment = effects.into_iter().find_map(|effect| match effect {
            ControllerEffect::SendToStorageNode(_, command) => match command.command {
                StorageCommand::CreateFragment(plan) => Some(plan.fragment),
                command => panic!("{command:?}"),
            },
            _ => None,
        });
        pool.storage_report(StorageReport::FragmentReady(fragment.unwrap()));
        let names: Vec<String> = (0..hosts).map(|host| format!("nid{host:04}")).collect();
        for host in &names {
            pool.host_report(host, ComputeReport::Heartbeat(Vec::new()));
        }
        let effects =
            pool.request(4, Request::Activate { token: "7".into(), hosts: names, creator: None });
        let commands = effects.into_iter().filter_map(|effect| match effect {
            ControllerEffect::SendToComputeNode(host, command) => Some((host, command.command)),
            _ => None,
        });
        (pool, commands.collect())
    }
}

fn bytes_written(effects: &[ControllerEffect]) -> usize {
    let changes = effects.iter().flat_map(|effect| match effect {
        ControllerEffect::Persist(changes) => &changes[..],
        _ => &[],
    });
    changes.filter_map(|change| change.value.as_ref()).map(Vec::len).sum()
}

fn mounted(command: &ComputeCommand) -> ComputeReport {
    match command {
        ComputeCommand::Mount(plan) => ComputeReport::Mounted(plan.activation, plan.generation),
        ComputeCommand::Unmount(id) => panic!("unmount of {id:?}"),
    }
}

#[test]
fn report_of_one_host_writes_no_more_records_on_a_thousand_hosts_than_on_two() {
    let written = [2, 1_000].map(|hosts| {
        let (mut pool, commands) = Pool::mounting(hosts);
        assert_eq!(commands.len(), hosts, "every host is told to mount, once");
        let (host, command) = &commands[0];
        bytes_written(&pool.host_report(host, mounted(command)))
    });
    assert!(written[0] > 0, "the mount is recorded");
    // The record of the revision has up to three digits more.
    assert!(written[1] <= written[0] + 3, "{written:?} bytes");
}

#[test]
fn reply_to_activation_follows_the_report_of_the_last_host() {
    let (mut pool, commands) = Pool::mounting(50);
    for (index, (host, command)) in commands.iter().enumerate() {
        let effects = pool.host_report(host, mounted(command));
        let replies = effects.iter().filter(|e| matches!(e, ControllerEffect::Reply(..))).count();
        assert_eq!(replies, usize::from(index == 49), "after host {index}");
    }
}

/// Versions up to 0.1 kept the hosts of an activation in its record.
#[test]
fn activation_of_an_earlier_version_keeps_its_hosts() {
    let (mut pool, commands) = Pool::mounting(3);
    for (host, command) in &commands {
        pool.host_report(host, mounted(command));
    }
    let is_mount = |record: &StoredRecord| record.0 == "mounts";
    let all = pool.records.iter();
    let all: Vec<StoredRecord> = all.map(|((t, k), v)| (t.clone(), *k, v.clone())).collect();
    let (mounts, mut records): (Vec<_>, Vec<_>) = all.into_iter().partition(is_mount);
    let hosts: serde_json::Map<String, serde_json::Value> = mounts
        .iter()
        .map(|(_, _, value)| {
            let mut mount: serde_json::Value = serde_json::from_slice(value).unwrap();
            (mount["host"].as_str().unwrap().to_owned(), mount["state"].take())
        })
        .collect();
    let activation = records.iter_mut().find(|record| record.0 == "activations").unwrap();
    let mut row: serde_json::Value = serde_json::from_slice(&activation.2).unwrap();
    row["hosts"] = hosts.into();
    row["replicas"] = serde_json::json!({});
    activation.2 = serde_json::to_vec(&row).unwrap();

    let mut restored = Controller::restore(Settings::default(), records).unwrap();
    let status = restored.status().activations;
    assert_eq!(status[0].hosts, ["nid0000", "nid0001", "nid0002"]);
    assert_eq!(status[0].state, "CA---");
    let effects = restored.step(UnixMillis(2_000), ControllerInput::Tick);
    let ControllerEffect::Persist(changes) = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(changes.iter().filter(|change| change.table == "mounts").count(), 3);
}
