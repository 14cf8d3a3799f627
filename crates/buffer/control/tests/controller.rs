//! What users and operators get from a controller: who may do what, what is refused and why.
#![allow(clippy::unwrap_used)] // a test: what cannot be unwrapped has failed

mod driven;

use std::collections::BTreeMap;

use driven::{ADA, ControllerHarness, ROOT, SimPeers};
use forebay_control::compute_node::{self, ComputeNode};
use forebay_control::controller::*;
use forebay_control::messages::*;
use forebay_control::records::Change;
use forebay_control::storage_node::{self, StorageNode};
use forebay_job_script::JobScript;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

const BOB: Owner = Owner {
    uid: 1001,
    gid: 101,
};
const EVE_IN_ADAS_GROUP: Owner = Owner {
    uid: 1002,
    gid: 100,
};
/// Two nodes of ten 1 GiB granules and a host, and what the controller has made durable.
struct Real {
    nodes: Vec<StorageNode>,
    host: ComputeNode,
    records: BTreeMap<(String, u64), Vec<u8>>,
}

impl Real {
    fn rows(&self) -> Vec<(String, u64, Vec<u8>)> {
        let rows = self.records.iter();
        rows.map(|((table, key), value)| (table.clone(), *key, value.clone()))
            .collect()
    }
}

impl SimPeers for Real {
    fn persist(&mut self, changes: &[Change]) {
        for change in changes {
            let key = (change.table.to_owned(), change.key);
            match change.value.clone() {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
    }

    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        for node in &mut self.nodes {
            collect(node.step(storage_node::StorageInput::Tick), inputs);
        }
        for effect in self.host.step(compute_node::ComputeInput::Tick) {
            if let compute_node::ComputeEffect::Report(report) = effect {
                inputs.push(ControllerInput::Report(report));
            }
        }
    }

    fn carry_out(&mut self, peer: Peer, order: StampedCommand, inputs: &mut Vec<ControllerInput>) {
        match peer {
            Peer::StorageNode(id) => {
                let node = &mut self.nodes[id.0 as usize];
                for effect in node.step(storage_node::StorageInput::Command(order)) {
                    let next = match effect {
                        storage_node::StorageEffect::Create(plan) => {
                            storage_node::StorageInput::Created(plan.fragment, Ok(()))
                        }
                        storage_node::StorageEffect::Destroy(plan) => {
                            storage_node::StorageInput::Destroyed(plan.fragment, Ok(()))
                        }
                        storage_node::StorageEffect::StartMover(plan) => {
                            storage_node::StorageInput::MoverEnded(
                                plan.stage,
                                plan.attempt,
                                storage_node::MoverOutcome::Failed("/pfs is away".into()),
                            )
                        }
                        other => {
                            collect(vec![other], inputs);
                            continue;
                        }
                    };
                    collect(node.step(next), inputs);
                }
            }
            Peer::ComputeNode(_) => {
                for effect in self.host.step(compute_node::ComputeInput::Command(order)) {
                    let next = match effect {
                        compute_node::ComputeEffect::Mount(plan) => {
                            compute_node::ComputeInput::Mounted(plan.activation, Ok(()))
                        }
                        compute_node::ComputeEffect::Unmount(plan) => {
                            compute_node::ComputeInput::Unmounted(plan.activation, Ok(()))
                        }
                        compute_node::ComputeEffect::Report(report) => {
                            inputs.push(ControllerInput::Report(report));
                            continue;
                        }
                    };
                    for effect in self.host.step(next) {
                        if let compute_node::ComputeEffect::Report(report) = effect {
                            inputs.push(ControllerInput::Report(report));
                        }
                    }
                }
            }
        }
    }
}

type Site = ControllerHarness<Real>;

fn site() -> Site {
    site_with(Settings::default())
}

fn site_with(settings: Settings) -> Site {
    let controller = Controller::restore(settings, Vec::new()).unwrap();
    let node = |id| StorageNode::restore(NodeId(id), 10, UnixMillis(0), Vec::new()).unwrap();
    let peers = Real {
        nodes: vec![node(0), node(1)],
        host: ComputeNode::new("nid1".into(), UnixMillis(0)),
        records: BTreeMap::new(),
    };
    ControllerHarness::new(controller, peers, 2)
}

fn persistent(site: &mut Site, owner: Owner, name: &str, public: bool) -> Outcome {
    let text = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n";
    let spec = Setup::from_script(&JobScript::parse(text, None).unwrap())
        .instance
        .unwrap();
    site.request(
        owner,
        Request::CreatePersistent {
            name: name.into(),
            owner,
            spec,
            public,
        },
    )
}

fn collect(effects: Vec<storage_node::StorageEffect>, inputs: &mut Vec<ControllerInput>) {
    for effect in effects {
        if let storage_node::StorageEffect::Report(report) = effect {
            inputs.push(ControllerInput::Report(report));
        }
    }
}

fn cause(outcome: Outcome) -> Cause {
    outcome.unwrap_err().cause
}

const JOB: &str = "#DW jobdw capacity=3GiB type=scratch access_mode=striped,private\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";

fn token(token: &str) -> String {
    token.into()
}

#[test]
fn an_instance_belongs_to_its_user() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    assert_eq!(
        cause(site.request(
            BOB,
            Request::Teardown {
                token: token("7"),
                hurry: true
            }
        )),
        Cause::Denied
    );
    assert_eq!(
        cause(site.request(BOB, Request::StageIn { token: token("7") })),
        Cause::Denied
    );
    assert_eq!(
        cause(site.request(
            BOB,
            Request::Activate {
                token: token("7"),
                hosts: vec!["nid1".into()]
            }
        )),
        Cause::Denied
    );
    assert!(site.controller.mount_variables("7", BOB).is_err());
    assert_eq!(cause(site.setup(BOB, "7", JOB)), Cause::Denied);
    let setup = Setup::default();
    let request = Request::Setup {
        token: token("8"),
        owner: ADA,
        creator: "x".into(),
        setup,
    };
    assert_eq!(
        cause(site.request(BOB, request)),
        Cause::Denied,
        "in another's name"
    );
    assert_eq!(
        cause(site.request(
            BOB,
            Request::DrainNode {
                node: NodeId(0),
                drained: true
            }
        )),
        Cause::Denied
    );
    let paths = site.controller.mount_variables("7", ADA).unwrap();
    let root = "/var/opt/cray/dws/mounts/batch/7";
    assert_eq!(
        paths,
        [
            ("DW_JOB_STRIPED".to_owned(), format!("{root}/ss/")),
            ("DW_JOB_PRIVATE".to_owned(), format!("{root}/private/")),
        ]
    );
    assert_eq!(site.controller.real_size("7", ADA).unwrap(), Bytes(3 << 30));
    site.request(
        ROOT,
        Request::Teardown {
            token: token("7"),
            hurry: false,
        },
    )
    .unwrap();
}

#[test]
fn persistent_instances_are_shared_by_name_and_outlive_jobs() {
    let mut site = site();
    persistent(&mut site, ADA, "dbs", false).unwrap();
    let user = "#DW persistentdw name=dbs\n";
    assert_eq!(cause(site.setup(BOB, "1", user)), Cause::Denied);
    site.setup(EVE_IN_ADAS_GROUP, "2", user).unwrap();
    site.setup(ADA, "3", user).unwrap();
    let path = &site.controller.mount_variables("3", ADA).unwrap()[0];
    assert_eq!(path.0, "DW_PERSISTENT_STRIPED_dbs");
    assert!(path.1.ends_with("/"));
    let destroy = Request::DestroyPersistent {
        name: token("dbs"),
        hurry: true,
    };
    assert_eq!(
        cause(site.request(ADA, destroy.clone())),
        Cause::Busy,
        "hurry does not take it from jobs"
    );
    for (owner, job) in [(EVE_IN_ADAS_GROUP, "2"), (ADA, "3")] {
        site.request(
            owner,
            Request::Teardown {
                token: token(job),
                hurry: false,
            },
        )
        .unwrap();
    }
    assert_eq!(site.controller.status().instances.len(), 1);
    assert_eq!(cause(site.request(BOB, destroy.clone())), Cause::Denied);
    site.request(ADA, destroy).unwrap();
    assert!(site.controller.status().instances.is_empty());
    assert_eq!(cause(site.setup(ADA, "4", user)), Cause::NotFound);
}

#[test]
fn results_are_kept_until_they_are_staged_out_or_given_up() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    site.request(ADA, Request::StageIn { token: token("7") })
        .unwrap();
    site.request(
        ADA,
        Request::Activate {
            token: token("7"),
            hosts: vec!["nid1".into()],
        },
    )
    .unwrap();
    assert_eq!(
        cause(site.request(ADA, Request::StageOut { token: token("7") })),
        Cause::Busy,
        "mounted"
    );
    site.request(ADA, Request::Deactivate { token: token("7") })
        .unwrap();
    let failure = site
        .request(ADA, Request::StageOut { token: token("7") })
        .unwrap_err();
    assert_eq!(failure.cause, Cause::Failed);
    assert_eq!(failure.reason, "stage_out of line 2: /pfs is away");
    let kept = site
        .request(
            ADA,
            Request::Teardown {
                token: token("7"),
                hurry: false,
            },
        )
        .unwrap_err();
    assert!(
        kept.reason
            .contains("1 stage-out(s) are not done (1 failed)"),
        "{kept}"
    );
    assert_eq!(site.controller.status().instances.len(), 1);
    site.request(
        ADA,
        Request::Teardown {
            token: token("7"),
            hurry: true,
        },
    )
    .unwrap();
    assert_eq!(site.controller.status().pools[0].free, 20);
    assert!(
        site.peers
            .nodes
            .iter()
            .all(|node| node.used_granules() == 0)
    );
}

#[test]
fn a_pool_gives_all_it_has_and_no_more() {
    let mut site = site();
    let all = "#DW jobdw capacity=20GiB type=scratch access_mode=striped\n";
    site.setup(ADA, "1", all).unwrap();
    let failure = site
        .setup(
            ADA,
            "2",
            "#DW jobdw capacity=1MiB type=scratch access_mode=striped\n",
        )
        .unwrap_err();
    assert_eq!(failure.cause, Cause::Full);
    assert!(
        failure.reason.contains("1 granules are wanted, 0 are free"),
        "{failure}"
    );
    let sizes = "(a granule is 1.00 GiB, which is 1.00 GiB and 0 B)";
    assert!(failure.reason.ends_with(sizes), "{failure}");
    site.request(
        ADA,
        Request::Teardown {
            token: token("1"),
            hurry: false,
        },
    )
    .unwrap();
    site.request(
        ROOT,
        Request::DrainNode {
            node: NodeId(0),
            drained: true,
        },
    )
    .unwrap();
    assert_eq!(cause(site.setup(ADA, "3", all)), Cause::Full);
    site.setup(
        ADA,
        "4",
        "#DW jobdw capacity=2nodes type=scratch access_mode=striped\n",
    )
    .unwrap_err();
    site.setup(
        ADA,
        "5",
        "#DW jobdw capacity=1node type=scratch access_mode=striped\n",
    )
    .unwrap();
    assert_eq!(site.controller.status().instances[0].nodes, [NodeId(1)]);
    let pool = "#DW jobdw capacity=1GiB type=scratch access_mode=striped pool=slow\n";
    assert!(
        site.setup(ADA, "6", pool)
            .unwrap_err()
            .reason
            .contains("the pools are fast")
    );
    assert_eq!(cause(site.setup(ADA, "../7", JOB)), Cause::Invalid);
}

#[test]
fn a_restarted_controller_knows_what_it_knew() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    persistent(&mut site, ADA, "dbs", true).unwrap();
    let before = site.controller.status();
    site.controller = Controller::restore(Settings::default(), site.peers.rows()).unwrap();
    site.request(ADA, Request::StageIn { token: token("7") })
        .unwrap();
    assert_eq!(site.controller.status(), before);
    assert_eq!(before.instances[0].state, "CA---");
    let damaged = vec![("sessions".to_owned(), 1, b"{".to_vec())];
    let error = Controller::restore(Settings::default(), damaged).unwrap_err();
    assert!(error.to_string().contains("record 1 of table `sessions`"));
}

#[test]
fn a_running_job_puts_stages_off_and_changes_its_mind() {
    let mut site = site();
    let script = "#DW jobdw capacity=3GiB type=scratch access_mode=striped\n";
    site.setup(ADA, "9", script).unwrap();
    let hosts = vec!["nid1".into()];
    let token = || token("9");
    let activate = Request::Activate {
        token: token(),
        hosts,
    };
    site.request(ADA, activate).unwrap();
    let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";
    let what = JobScript::parse(text, None).unwrap().stages[0].clone();
    let mut put_off = |caller| {
        let (token, what) = (token(), what.clone());
        site.request(caller, Request::DeferStage { token, what })
    };
    assert_eq!(cause(put_off(BOB)), Cause::Denied);
    let mut stages = Vec::new();
    for _ in 0..3 {
        let Answer::Stage(stage) = put_off(ADA).unwrap() else {
            panic!("no stage")
        };
        stages.push(stage);
    }
    let state = |site: &Site, stage| site.controller.stage(stage).unwrap().state;
    assert_eq!(state(&site, stages[0]), StageState::Waiting);
    // Now after all: it fails, as all copies do here, and can be asked for once only.
    let release = |stage| Request::ReleaseStage { stage };
    assert_eq!(cause(site.request(BOB, release(stages[0]))), Cause::Denied);
    site.request(ADA, release(stages[0])).unwrap();
    let stage = stages[0];
    assert_eq!(
        cause(site.request(ADA, Request::AwaitStage { stage })),
        Cause::Failed
    );
    assert!(matches!(state(&site, stages[0]), StageState::Failed(_)));
    assert_eq!(cause(site.request(ADA, release(stages[0]))), Cause::Invalid);
    // Not at all.
    let stage = stages[1];
    site.request(ADA, Request::CancelStage { stage }).unwrap();
    assert_eq!(state(&site, stage), StageState::Cancelled);
    assert_eq!(cause(site.request(ADA, release(stage))), Cause::Invalid);
    // At the end: the third, and the first again.
    site.request(ADA, Request::Deactivate { token: token() })
        .unwrap();
    let failure = site
        .request(ADA, Request::StageOut { token: token() })
        .unwrap_err();
    let told: Vec<&str> = failure.reason.lines().collect();
    assert_eq!(told, ["stage_out of line 2: /pfs is away"; 2]);
    let limit = |most| Request::LimitStages {
        token: token(),
        space: forebay_job_script::InstanceRef::Job,
        max_concurrent: most,
    };
    site.request(ADA, limit(1)).unwrap();
    assert_eq!(cause(site.request(ADA, limit(0))), Cause::Invalid);
    assert_eq!(cause(site.request(BOB, limit(2))), Cause::Denied);
}

/// What `forebay stage` did last is remembered, but not all that it ever did.
#[test]
fn a_persistent_instance_can_be_staged_from_for_ever() {
    let mut site = site_with(Settings {
        max_stages: 20,
        max_kept_stages: 8,
        ..Settings::default()
    });
    persistent(&mut site, ADA, "data", false).unwrap();
    let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";
    let mut what = JobScript::parse(text, None).unwrap().stages[0].clone();
    what.line = 0;
    let mut last = None;
    for _ in 0..30 {
        let (token, what) = (token("data"), what.clone());
        let Answer::Stage(stage) = site
            .request(ADA, Request::BeginStage { token, what })
            .unwrap()
        else {
            panic!("no stage")
        };
        let failure = site
            .request(ADA, Request::AwaitStage { stage })
            .unwrap_err();
        assert_eq!(
            failure.reason,
            "stage_out of $DW_JOB_STRIPED/a: /pfs is away"
        );
        last = Some(stage);
    }
    assert!(site.controller.stage(last.unwrap()).is_some());
    let stages = site.controller.status().stages.len();
    assert!((2..=8).contains(&stages), "{stages}");
}

#[test]
fn hosts_without_an_agent_are_refused_by_name() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    site.advance_ms(61_000);
    let activate = |hosts: &[&str]| Request::Activate {
        token: token("7"),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    let failure = site.request(ADA, activate(&["nid1", "nid9"])).unwrap_err();
    assert_eq!(failure.cause, Cause::NotFound);
    assert!(
        failure.reason.contains("no agent of `nid9` has reported"),
        "{failure}"
    );
    // Nothing was begun, and the hosts that are there can be used.
    assert!(site.controller.status().sessions[0].hosts.is_empty());
    site.request(ADA, activate(&["nid1"])).unwrap();
}

/// A controller that has just begun waits for agents to find it, but not for ever.
#[test]
fn hosts_that_never_come_are_named_after_a_while() {
    let mut site = site();
    let two_views = "#DW jobdw capacity=3GiB type=scratch access_mode=striped,private\n";
    site.setup(ADA, "7", two_views).unwrap();
    let activate = |hosts: &[&str]| Request::Activate {
        token: token("7"),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    let begun = site.now;
    let failure = site.request(ADA, activate(&["nid1", "nid9"])).unwrap_err();
    assert!((50_000..70_000).contains(&(site.now - begun)), "{failure}");
    assert_eq!(failure.cause, Cause::NotFound);
    assert!(
        failure.reason.contains("no agent of `nid9` has"),
        "each is named once, not for each view: {failure}"
    );
    site.request(ADA, activate(&["nid1"])).unwrap();
}

#[test]
fn a_user_does_not_take_all_sessions() {
    let mut site = site_with(Settings {
        max_user_sessions: 2,
        ..Settings::default()
    });
    let job = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n";
    site.setup(ADA, "1", job).unwrap();
    site.setup(ADA, "2", job).unwrap();
    let third = site.setup(ADA, "3", job).unwrap_err();
    assert_eq!(third.cause, Cause::Full);
    assert!(third.reason.contains("user 1000 has 2 sessions"), "{third}");
    site.setup(ADA, "2", job).unwrap();
    site.setup(BOB, "3", job).unwrap();
    for token in ["4", "5", "6"] {
        site.setup(ROOT, token, job).unwrap();
    }
}

#[test]
fn a_job_runs_once_at_a_time() {
    let mut site = site();
    let set_up_by = |site: &mut Site, creator: &str| {
        let setup = Setup::from_script(&JobScript::parse(JOB, None).unwrap());
        site.request(
            ADA,
            Request::Setup {
                token: token("7"),
                owner: ADA,
                creator: creator.into(),
                setup,
            },
        )
    };
    let run_by = |site: &mut Site, creator: &str| {
        site.request(
            ADA,
            Request::Run {
                token: token("7"),
                hosts: vec!["nid1".into()],
                creator: creator.into(),
            },
        )
    };
    set_up_by(&mut site, "first").unwrap();
    // Whoever sets it up last runs it.
    set_up_by(&mut site, "second").unwrap();
    assert_eq!(cause(run_by(&mut site, "first")), Cause::Busy);
    run_by(&mut site, "second").unwrap();
    let third = set_up_by(&mut site, "third").unwrap_err();
    assert_eq!(third.cause, Cause::Busy);
    assert!(third.reason.contains("mounted on nid1"), "{third}");
    // Asked again by the one who runs it, for an answer that was lost.
    set_up_by(&mut site, "second").unwrap();
    run_by(&mut site, "second").unwrap();
    site.request(ADA, Request::Deactivate { token: token("7") })
        .unwrap();
    set_up_by(&mut site, "third").unwrap();
    run_by(&mut site, "third").unwrap();
    // Its maker stays who it was.
    assert_eq!(site.controller.status().sessions[0].creator, "first");
}

/// Jobs write to a persistent instance, not its own session: what is to leave it is kept all the
/// same.
#[test]
fn what_waits_to_leave_a_persistent_instance_is_kept() {
    let mut site = site();
    persistent(&mut site, ADA, "data", false).unwrap();
    let text = "#DW persistentdw name=data\n\
                #DW stage_out type=file source=$DW_PERSISTENT_STRIPED_data/a destination=/pfs/a\n";
    let what = JobScript::parse(text, None).unwrap().stages.remove(0);
    let stage = Request::BeginStage {
        token: token("data"),
        what,
    };
    let Answer::Stage(stage) = site.request(ADA, stage).unwrap() else {
        panic!("no stage")
    };
    site.request(ADA, Request::AwaitStage { stage })
        .unwrap_err();
    let destroy = |hurry| Request::DestroyPersistent {
        name: token("data"),
        hurry,
    };
    let kept = site.request(ADA, destroy(false)).unwrap_err();
    assert!(
        kept.reason
            .contains("1 stage-out(s) are not done (1 failed)"),
        "{kept}"
    );
    site.request(ADA, destroy(true)).unwrap();
}

/// Of two runs that have set the same job up, the one that does not get it leaves it to the other.
#[test]
fn a_run_ends_only_a_job_that_no_other_run_has_taken_over() {
    let mut site = site();
    let set_up_by = |site: &mut Site, creator: &str| {
        let setup = Setup::from_script(&JobScript::parse(JOB, None).unwrap());
        let (token, creator) = (token("7"), creator.into());
        site.request(
            ADA,
            Request::Setup {
                token,
                owner: ADA,
                creator,
                setup,
            },
        )
        .unwrap();
    };
    let end = |creator: &str, hurry| Request::End {
        token: token("7"),
        creator: creator.into(),
        hurry,
    };
    let leave = |creator: &str| Request::Leave {
        token: token("7"),
        creator: creator.into(),
    };
    set_up_by(&mut site, "first");
    set_up_by(&mut site, "second");
    let run = Request::Run {
        token: token("7"),
        hosts: vec!["nid1".into()],
        creator: "second".into(),
    };
    site.request(ADA, run).unwrap();
    for request in [leave("first"), end("first", true), end("first", false)] {
        let refused = site.request(ADA, request).unwrap_err();
        assert_eq!(refused.cause, Cause::Busy);
        assert!(
            refused.reason.contains("another run has taken"),
            "{refused}"
        );
    }
    assert!(site.controller.job_view("7", ADA).unwrap().mounted);
    assert_eq!(cause(site.request(BOB, leave("second"))), Cause::Denied);
    site.request(ADA, leave("second")).unwrap();
    assert_eq!(
        cause(site.request(ADA, end("second", false))),
        Cause::Busy,
        "its results are not staged out"
    );
    site.request(ADA, end("second", true)).unwrap();
    assert!(site.controller.status().sessions.is_empty());
    // Asked again after it was done.
    site.request(ADA, end("second", true)).unwrap();
}

#[test]
fn a_path_outside_must_be_absolute() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    let mut what = JobScript::parse(JOB, None).unwrap().stages.remove(0);
    what.destination = forebay_job_script::StagePath::Pfs("pfs/a".into());
    let stage = Request::BeginStage {
        token: token("7"),
        what,
    };
    let refused = site.request(ADA, stage).unwrap_err();
    assert_eq!(refused.cause, Cause::Invalid);
    assert!(
        refused.reason.contains("`pfs/a` is no absolute path"),
        "{refused}"
    );
}
