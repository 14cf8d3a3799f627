//! The status of one job.

use crate::harness;
use forebay_control::controller::{ControlStatus, Request, Settings};
use harness::{ADA, ControllerHarness, SimStorage};

type TestPool = ControllerHarness<SimStorage>;

const NODES: u32 = 40;
const JOB: &str = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n\
                   #DW stage_in type=file source=/pfs/a destination=$DW_JOB_STRIPED/a\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/b destination=/pfs/b\n";

fn test_pool() -> TestPool {
    let mut pool = ControllerHarness::new(Settings::default(), SimStorage::new(NODES), NODES);
    pool.setup(ADA, "7", JOB).unwrap();
    pool.send_request(ADA, Request::StageIn { token: "7".into() });
    pool
}

fn length(status: &ControlStatus) -> usize {
    serde_json::to_vec(status).unwrap().len()
}

#[test]
fn status_of_a_job_is_its_part_of_the_whole() {
    let mut pool = test_pool();
    pool.setup(ADA, "8", JOB).unwrap();
    let (all, own) = (pool.controller.status(), pool.controller.job_status("7"));
    assert_eq!(own.sessions, [all.job_session("7").unwrap().clone()]);
    let id = own.sessions[0].id;
    assert_eq!(own.instances, [all.instance_of(id).unwrap().clone()]);
    let stages = all.stages.iter().filter(|stage| stage.token == "7").cloned();
    assert_eq!(own.stages, stages.collect::<Vec<_>>());
    assert_eq!(own.stages.len(), 2);
    let nodes = all.nodes.iter().filter(|node| own.instances[0].nodes.contains(&node.id));
    assert_eq!(own.nodes, nodes.cloned().collect::<Vec<_>>());
    let absent = pool.controller.job_status("9");
    assert!(absent.sessions.is_empty() && absent.instances.is_empty() && absent.stages.is_empty());
}

#[test]
fn instances_that_a_job_uses_are_in_its_status() {
    let mut pool = test_pool();
    let spec = forebay_control::controller::Setup::from_script(
        &forebay_job_script::JobScript::parse(JOB, None).unwrap(),
    );
    let spec = spec.instance.unwrap();
    let create = Request::CreatePersistent { name: "p".into(), owner: ADA, spec, public: false };
    pool.request(ADA, create).unwrap();
    pool.setup(ADA, "8", "#DW persistentdw name=p\n").unwrap();
    let own = pool.controller.job_status("8");
    assert_eq!(own.instances[0].label, "p");
    assert_eq!(pool.controller.job_status("p").sessions[0].token, "p");
}

#[test]
fn length_of_a_jobs_status_depends_on_no_other_jobs_and_nodes() {
    let mut pool = test_pool();
    let before = length(&pool.controller.job_status("7"));
    let whole = length(&pool.controller.status());
    for job in 100..200 {
        pool.setup(ADA, &job.to_string(), JOB).unwrap();
    }
    assert!(length(&pool.controller.status()) > 10 * whole);
    let after = length(&pool.controller.job_status("7"));
    // Numbers of granules and fragments have more digits.
    assert!(after <= before + 20, "{before}, {after} bytes");
    // The job's nodes, and some that are offline.
    pool.peers.silent.extend(0..NODES);
    pool.advance_ms(11_000);
    let nodes = pool.controller.job_status("7").nodes;
    assert!(nodes.iter().all(|node| !node.online) && nodes.len() <= 18, "{}", nodes.len());
}
