//! Calls of a job's processes on many hosts that wait for a stage.

use std::sync::atomic::Ordering;

use forebay_control::messages::{InstanceId, Report, StorageReport};
use forebay_job_script::{BufferPath, Direction, InstanceRef, Stage, StageKind, StagePath};
use forebay_protocol::staging::{JobRequest, PathKind, StagingCall, StagingReply};
use forebay_store::daemon::StoreReport;
use forebay_store::objects::RemovalProgress;

use super::*;
use crate::connection::Endpoint;
use crate::controller::port::ControllerPort;
use crate::job_api::JobApi;

const HOSTS: usize = 300;
const ADA: Owner = Owner { uid: 1000, gid: 100 };

fn step_request(driver: &mut Driver, number: u128, request: Request) {
    let envelope = RequestEnvelope { id: RequestId(number), caller: ADA, request };
    driver.step(ControllerInput::Request(Box::new(envelope)));
    driver.flush().unwrap();
}

/// A report of the storage node.
fn report(driver: &Driver, number: u64, body: StorageReport) -> Report {
    let disk = driver.controller.state().storage.node(NodeId(0)).unwrap().disk.unwrap();
    Report::Storage { node: NodeId(0), disk, sequence: disk + 1000 + number, body }
}

/// Job 7, which is being set up.
fn setting_up(directory: &Path) -> Driver {
    let mut driver = driver(directory);
    let script = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n";
    let setup = Request::Setup {
        token: "7".into(),
        owner: ADA,
        creator: "test".into(),
        setup: Setup::from_script(&JobScript::parse(script, None).unwrap()),
    };
    step_request(&mut driver, 1, setup);
    driver
}

/// Job 7, which is mounted on all hosts and has a stage that is running.
fn staging(directory: &Path) -> Driver {
    let mut driver = setting_up(directory);
    let fragment = driver.controller.status().fragments[0].id;
    let ready = report(&driver, 1, StorageReport::FragmentReady(fragment));
    driver.step(ControllerInput::Report(ready));
    let hosts = (0..HOSTS).map(|host| format!("nid{host}")).collect();
    step_request(&mut driver, 2, Request::Activate { token: "7".into(), hosts, creator: None });
    let inside = BufferPath { instance: InstanceRef::Job, path: "a".into() };
    let what = Stage {
        direction: Direction::In,
        kind: StageKind::File,
        source: StagePath::Pfs("/pfs/a".into()),
        destination: StagePath::Buffer(inside),
        line: 0,
    };
    step_request(&mut driver, 3, Request::BeginStage { token: "7".into(), what });
    assert_eq!(driver.controller.status().stages.len(), 1);
    driver
}

/// Runs a driver until it is stopped, and counts the messages of its connections.
fn serve(mut driver: Driver, inbox: Receiver<Event>, messages: &AtomicUsize) {
    for event in inbox {
        if let Event::Message(..) = event {
            messages.fetch_add(1, Ordering::AcqRel);
        }
        driver.handle_event(event).unwrap();
        driver.flush().unwrap();
        if driver.is_stopped {
            return;
        }
    }
}

#[test]
fn processes_on_three_hundred_hosts_wait_for_a_stage_with_few_messages() {
    let directory = tempfile::tempdir().unwrap();
    let driver = staging(directory.path());
    let variables = driver.controller.mount_variables("7", ADA).unwrap();
    // As an agent makes it when it mounts.
    let mount = directory.path().join("mount");
    let link = Path::new(variables[0].1.trim_end_matches('/'));
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&mount, link).unwrap();
    let path = mount.join("a").display().to_string();
    let stage = driver.controller.status().stages[0].id;
    let done = report(&driver, 2, StorageReport::StageDone(stage, 1, Default::default()));
    let (port, inbox) = ControllerPort::new(RefusedHosts::default());
    let messages = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let served = &messages;
        scope.spawn(move || serve(driver, inbox, served));
        let wait = || {
            let endpoint = Endpoint::InProcess(port.clone());
            let api = JobApi::new(endpoint, "/nowhere".into(), directory.path().to_owned());
            let call = StagingCall::Wait(PathKind::File, vec![path.clone()]);
            let reply = api.answer_call(ADA, JobRequest { job: "7".into(), call });
            reply.map_err(|refused| refused.1)
        };
        let hosts: Vec<_> = (0..HOSTS).map(|_| scope.spawn(wait)).collect();
        let count = || messages.load(Ordering::Acquire);
        // The job, its stages, and the wait.
        let begun = Instant::now();
        while count() < 3 * HOSTS {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} messages", count());
            std::thread::sleep(Duration::from_millis(20));
        }
        let before = count();
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(count(), before, "who waits sends nothing");
        let candidate = Candidate {
            uid: 0,
            gid: 0,
            trusted: true,
            role: Role::Storage("bb0".into()),
            source: None,
            munge_origin: None,
            stream: None,
        };
        let node = port.connect(candidate).unwrap_or_else(|reason| panic!("{reason}"));
        assert!(port.deliver(node.id, ToController::Report(done)));
        for host in hosts {
            assert_eq!(host.join().unwrap(), Ok(StagingReply::Done));
        }
        assert!(count() <= 4 * HOSTS + 1, "{} messages", count());
        port.stop();
    });
}

#[test]
fn status_of_a_job_has_nothing_of_hosts_but_the_progress_of_its_removal() {
    let directory = tempfile::tempdir().unwrap();
    let mut driver = setting_up(directory.path());
    let own = driver.controller.status().instances[0].id;
    let length = |driver: &Driver| serde_json::to_vec(&driver.job_status("7")).unwrap().len();
    let before = length(&driver);
    let removal = |instance: InstanceId| RemovalProgress {
        instance: instance.0,
        total_objects: 10,
        removed_objects: 4,
    };
    for host in 0..100 {
        let removals = vec![removal(InstanceId(own.0 + 1))];
        let host = format!("nid{host}");
        let store = Some(StoreReport { removals, ..StoreReport::default() });
        let activity = HostActivity { host: host.clone(), store, ..HostActivity::default() };
        driver.activity.insert(Peer::ComputeNode(host), activity);
    }
    assert_eq!(length(&driver), before);
    assert_eq!(driver.job_status("7").removal_progress(own), None);
    let store = Some(StoreReport {
        removals: vec![removal(InstanceId(own.0 + 1)), removal(own)],
        records: 7,
        ..StoreReport::default()
    });
    let activity = HostActivity { store, ..HostActivity::default() };
    driver.activity.insert(Peer::StorageNode(NodeId(0)), activity);
    let status = driver.job_status("7");
    assert_eq!(status.removal_progress(own), Some(removal(own)));
    assert_eq!(status.activity.len(), 1);
    assert_eq!(status.activity[0].store.as_ref().unwrap().records, 0);
}
