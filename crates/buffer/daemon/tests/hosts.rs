//! A pool's daemons over loopback, in one process: who is let in, who is not, and what becomes of
//! requests while the controller is away. Hosts know each other by the pool's key here.
#![allow(clippy::unwrap_used)] // a test: what cannot be unwrapped has failed

mod site;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use forebay_control::controller::{Answer, Cause, InstanceSpec, Request};
use forebay_control::messages::Owner;
use forebay_daemon::ControllerClient;
use forebay_daemon::activity::{HostActivity, exposition};
use forebay_daemon::hosts::{ControllerDaemon, PoolConfig, RemoteController, StorageDaemon};
use forebay_job_script::{Access, AccessMode, Capacity, InstanceType};
use forebay_units::Bytes;
use site::{TestPool, frame, is_online, wait_for};

fn persistent(name: &str, owner: Owner) -> Request {
    let access = Access {
        mode: AccessMode::Striped,
        modifiers: Default::default(),
    };
    Request::CreatePersistent {
        name: name.to_owned(),
        owner,
        spec: InstanceSpec {
            capacity: Capacity::Bytes(Bytes(4 << 20)),
            kind: InstanceType::Scratch,
            access: vec![access],
            pool: None,
            preference: Default::default(),
            modifiers: Default::default(),
        },
        public: false,
    }
}

#[test]
fn the_key_lets_hosts_in_and_another_does_not() {
    let site = TestPool::new(2);
    let _controller = site.controller();
    let _good = StorageDaemon::start(&site.config("key"), "s0").unwrap();
    let bad = StorageDaemon::start(&site.config("other-key"), "s1").unwrap();
    wait_for("the right one is let in", || {
        is_online(&site, "s0").then_some(())
    });
    let refused = RemoteController::open(&site.file("other-key", "none"))
        .err()
        .unwrap();
    assert!(refused.to_string().contains("not valid"), "{refused}");
    let between = RemoteController::open(&site.file("key", "none")).unwrap();
    assert_eq!(between.status().unwrap().nodes.len(), 2);
    assert!(!is_online(&site, "s1") && !bad.has_ended());
    let unknown = StorageDaemon::start(&site.config("key"), "s7")
        .err()
        .unwrap();
    assert!(
        unknown.to_string().contains("no storage node `s7`"),
        "{unknown}"
    );
}

#[test]
fn a_request_outlives_the_controllers_end() {
    let site = TestPool::new(2);
    let controller = site.controller();
    let remote = site.remote();
    let owner = remote.caller();
    // Without storage nodes it cannot be met yet.
    let answer = remote.submit(persistent("kept", owner)).unwrap();
    wait_for("it is accepted", || {
        let status = remote.status().ok()?;
        status.instances.first().map(|_| ())
    });
    controller.stop().unwrap();
    assert!(answer.try_recv().is_err());
    let _controller = site.controller();
    let start = |name| StorageDaemon::start(&site.config("key"), name).unwrap();
    let _nodes = [start("s0"), start("s1")];
    let outcome = answer.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(
        matches!(outcome, Ok(Answer::Session(_) | Answer::Done)),
        "{outcome:?}"
    );
    let status = remote.status().unwrap();
    assert_eq!(status.instances.len(), 1, "once");
    assert_eq!(status.instances[0].nodes.len(), 2);
    // The same name for something else is refused, with the reason.
    let again = remote.request(Request::DestroyPersistent {
        name: "other".into(),
        hurry: false,
    });
    assert_eq!(again.unwrap_err().cause, Cause::NotFound);
    remote
        .request(Request::DestroyPersistent {
            name: "kept".into(),
            hurry: false,
        })
        .unwrap();
}

#[test]
fn a_storage_node_keeps_its_data_from_a_controller_that_has_forgotten_it() {
    let site = TestPool::new(1);
    let controller = site.controller();
    let node = StorageDaemon::start(&site.config("key"), "s0").unwrap();
    let remote = site.remote();
    remote.request(persistent("kept", remote.caller())).unwrap();
    drop(remote);
    controller.stop().unwrap();
    fs::rename(site.path("controller"), site.path("lost")).unwrap();
    let forgetful = site.controller();
    wait_for("the node stops", || node.has_ended().then_some(()));
    let reason = node.stop().unwrap_err().to_string();
    assert!(reason.contains("belongs to pool"), "{reason}");
    forgetful.stop().unwrap();
    // Half of the state is noticed, too.
    fs::remove_file(site.path("controller/secret")).unwrap();
    let half = ControllerDaemon::start(&site.config("key")).err().unwrap();
    assert!(half.to_string().contains("secret: missing"), "{half}");
    // With its state back, everything is as it was.
    fs::remove_dir_all(site.path("controller")).unwrap();
    fs::rename(site.path("lost"), site.path("controller")).unwrap();
    let _controller = site.controller();
    let _node = StorageDaemon::start(&site.config("key"), "s0").unwrap();
    let remote = site.remote();
    let request = Request::DestroyPersistent {
        name: "kept".into(),
        hurry: false,
    };
    remote.request(request).unwrap();
}

/// What the controller says before it ends a connection on which this was sent.
fn say(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // It may hang up before it has taken everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
fn nonsense_is_refused_and_the_controller_goes_on() {
    let site = TestPool::new(1);
    let _controller = site.controller();
    let key = serde_json::to_string(&[7; 32]).unwrap();
    let hello = |version: u16| {
        frame(&format!(
            "{{\"hello\":{{\"version\":{version},\"role\":{{\"client\":null}},\"key\":{key}}}}}"
        ))
    };
    assert!(say(site.controller, b"GET / HTTP/1.1\r\n\r\n").contains("does not speak"));
    assert!(say(site.controller, &[0xff; 5000]).contains("does not speak"));
    let huge = [b"FBC1".as_slice(), &[0xff; 8]].concat();
    assert!(say(site.controller, &huge).contains("too long"));
    assert!(say(site.controller, &frame("{\"query\":[1,\"status\"]}")).contains("no greeting"));
    assert!(say(site.controller, &hello(9)).contains("version 9"));
    let zeros = serde_json::to_string(&[0; 32]).unwrap();
    for proof in [
        format!("{{\"Key\":{{\"mac\":{zeros},\"uid\":0,\"gid\":0}}}}"),
        "{\"Munge\":[77,85,78,71,69]}".to_owned(),
    ] {
        let mut bytes = hello(2);
        bytes.extend(frame(&format!("{{\"proof\":{proof}}}")));
        bytes.extend(frame("{\"query\":[1,\"status\"]}"));
        let said = say(site.controller, &bytes);
        assert!(
            said.contains("refused") && !said.contains("granularity"),
            "{said}"
        );
    }
    assert_eq!(site.remote().status().unwrap().nodes.len(), 1);
}

#[test]
fn a_key_that_cannot_be_read_is_told() {
    let site = TestPool::new(1);
    site.write_key("short", b"short");
    site.write_key("open", b"a key that all can read");
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(site.path("open"), open).unwrap();
    for (key, expected) in [
        ("short", "at least 16 bytes"),
        ("absent", "key file"),
        ("open", "chmod 600"),
    ] {
        let config = PoolConfig::read(&site.file(key, "controller")).unwrap();
        let error = ControllerDaemon::start(&config).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is_bad_input());
    }
    let absent = RemoteController::open(Path::new("/nonexistent/pool.toml"))
        .err()
        .unwrap();
    assert!(absent.to_string().contains("/nonexistent/pool.toml"));
}

#[test]
fn what_daemons_do_is_told_to_the_controller_and_to_prometheus() {
    let site = TestPool::new(2);
    let controller = site.controller();
    let names = ["s0", "s1"];
    let storage = names.map(|name| StorageDaemon::start(&site.config("key"), name).unwrap());
    wait_for("the nodes are in service", || {
        names
            .iter()
            .all(|name| is_online(&site, name))
            .then_some(())
    });
    let remote = site.remote();
    remote.request(persistent("data", remote.caller())).unwrap();
    let made = |host: &HostActivity| {
        let requests = &host.store.as_ref()?.requests;
        Some(requests.get("create_instance")?.latency.count())
    };
    let status = wait_for("both nodes tell that they made their part", || {
        let status = remote.status().ok()?;
        let told = status.activity.iter().filter(|host| made(host) == Some(1));
        (told.count() == 2).then_some(status)
    });
    let (bytes, inodes) = status.instance_usage(status.instances[0].id).unwrap();
    assert_eq!((bytes, inodes), (0, 1), "the root alone");
    let page = exposition(&controller.source()().unwrap());
    let count = "forebay_store_request_duration_seconds_count";
    for name in names {
        let line = format!("{count}{{host=\"{name}\",kind=\"create_instance\"}} 1\n");
        assert!(page.contains(&line), "{line} in\n{page}");
        let online = format!("forebay_node_online{{node=\"{name}\",pool=\"p\"}} 1\n");
        assert!(page.contains(&online), "{online} in\n{page}");
    }
    let own = storage[0].source()().unwrap();
    assert_eq!(own.activity.len(), 1);
    assert_eq!(made(&own.activity[0]), Some(1));
    let [first, second] = storage;
    first.stop().unwrap();
    wait_for("a node that has ended tells nothing", || {
        let activity = remote.status().ok()?.activity;
        (activity.len() == 1 && activity[0].host == "s1").then_some(())
    });
    second.stop().unwrap();
}
