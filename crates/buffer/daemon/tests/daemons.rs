//! A pool's daemons over loopback, in one process: authentication, and requests while the
//! controller is down. Hosts authenticate with the pool's key.

use crate::test_pool;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_control::controller::{Answer, Cause, Request};
use forebay_daemon::activity::{HostActivity, exposition};
use forebay_daemon::{ControllerClient, Daemon, PoolConfig};
use forebay_net::frame::{Flags, Kind, encode};
use forebay_units::Bytes;
use test_pool::{TestPool, create_persistent, frame, is_online, wait_for};

const CAPACITY: Bytes = Bytes(4 << 20);

#[test]
fn hosts_with_another_key_fail_authentication() {
    let pool = TestPool::new(2);
    let _controller = pool.controller();
    let _good = Daemon::start_storage(&pool.config("key"), "s0").unwrap();
    let bad = Daemon::start_storage(&pool.config("other-key"), "s1").unwrap();
    wait_for("the right one is accepted", || is_online(&pool, "s0").then_some(()));
    let refused = ControllerClient::open(&pool.file("other-key", "none")).err().unwrap();
    let refused = refused.to_string();
    assert!(refused.contains("authentication failed"), "{refused}");
    let between = ControllerClient::open(&pool.file("key", "none")).unwrap();
    assert_eq!(between.status().unwrap().nodes.len(), 2);
    assert!(!is_online(&pool, "s1") && !bad.has_ended());
    let refused = between.status().unwrap().refused;
    let [host] = &refused[..] else { panic!("{refused:?}") };
    assert!(host.nodes.contains(&"s1".to_owned()), "{host}");
    assert!(host.to_string().contains("(127.0.0.1) is refused: authentication failed"), "{host}");
    let unknown = Daemon::start_storage(&pool.config("key"), "s7").err().unwrap();
    assert!(unknown.to_string().contains("no storage node `s7`"), "{unknown}");
}

#[test]
fn root_of_other_hosts_than_the_administrators_is_refused() {
    let pool = TestPool::new(1);
    let file = pool.file("key", "controller");
    let text = fs::read_to_string(&file).unwrap();
    let limited = |hosts: &str| {
        let entry = format!("administrators = [{hosts}]\n[agent]");
        fs::write(&file, text.replace("[agent]", &entry)).unwrap();
        PoolConfig::read(&file).unwrap()
    };
    let over_tcp = || {
        let from = text.replace("controller.socket", "none.socket");
        fs::write(pool.path("tcp.toml"), from).unwrap();
        let client = ControllerClient::open(&pool.path("tcp.toml"))?;
        Ok::<_, forebay_daemon::DaemonError>(client.status().unwrap())
    };
    let config = limited("\"10.0.0.1\"");
    let controller = wait_for("start", || Daemon::start_controller(&config).ok());
    let refused = over_tcp().unwrap_err().to_string();
    assert!(refused.contains("from 10.0.0.1, but this is 127.0.0.1"), "{refused}");
    ControllerClient::open(&file).unwrap().status().unwrap();
    controller.stop().unwrap();
    let config = limited("\"10.0.0.1\", \"127.0.0.1\"");
    let _controller = wait_for("start", || Daemon::start_controller(&config).ok());
    over_tcp().unwrap();
}

/// The files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => files_below(&entry.path()),
        false => vec![entry.path()],
    };
    entries.flat_map(files).collect()
}

#[test]
fn locked_files_are_closed_to_other_users() {
    let pool = TestPool::new(1);
    let _controller = pool.controller();
    let _node = Daemon::start_storage(&pool.config("key"), "s0").unwrap();
    let _agent = Daemon::start_agent(&pool.config("key"), "nid0").unwrap();
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let locked: Vec<u64> = locks
        .lines()
        .filter(|line| line.contains("FLOCK"))
        .filter_map(|line| line.split_whitespace().nth(5)?.rsplit(':').next()?.parse().ok())
        .collect();
    let mut count = 0;
    for file in files_below(pool.directory.path()) {
        let metadata = fs::symlink_metadata(&file).unwrap();
        if locked.contains(&metadata.ino()) {
            assert_eq!(metadata.mode() & 0o077, 0, "{}", file.display());
            count += 1;
        }
    }
    assert!(count >= 4, "controller, node, its storage daemon and agent: {count} locked files");
}

#[test]
fn request_survives_a_controller_restart() {
    let pool = TestPool::new(2);
    let controller = pool.controller();
    let client = pool.client();
    let owner = client.caller();
    // Without storage nodes it cannot be met yet.
    let answer = client.submit(create_persistent("kept", owner, CAPACITY)).unwrap();
    wait_for("it is accepted", || {
        let status = client.status().ok()?;
        status.instances.first().map(|_| ())
    });
    controller.stop().unwrap();
    assert!(answer.try_recv().is_err());
    let _controller = pool.controller();
    let start = |name| Daemon::start_storage(&pool.config("key"), name).unwrap();
    let _nodes = [start("s0"), start("s1")];
    let outcome = answer.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(outcome, Ok(Answer::Session(_) | Answer::Done)), "{outcome:?}");
    let status = client.status().unwrap();
    assert_eq!(status.instances.len(), 1, "once");
    assert_eq!(status.instances[0].nodes.len(), 2);
    // The same name for something else is refused, with the reason.
    let again = client.request(Request::DestroyPersistent { name: "other".into(), hurry: false });
    assert_eq!(again.unwrap_err().cause, Cause::NotFound);
    client.request(Request::DestroyPersistent { name: "kept".into(), hurry: false }).unwrap();
}

#[test]
fn storage_node_refuses_a_controller_that_has_lost_its_state() {
    let pool = TestPool::new(1);
    let controller = pool.controller();
    let node = Daemon::start_storage(&pool.config("key"), "s0").unwrap();
    let client = pool.client();
    client.request(create_persistent("kept", client.caller(), CAPACITY)).unwrap();
    drop(client);
    controller.stop().unwrap();
    fs::rename(pool.path("controller"), pool.path("lost")).unwrap();
    let forgetful = pool.controller();
    wait_for("the node stops", || node.has_ended().then_some(()));
    let reason = node.stop().unwrap_err().to_string();
    assert!(reason.contains("belongs to pool"), "{reason}");
    forgetful.stop().unwrap();
    // Half of the state is noticed, too.
    fs::remove_file(pool.path("controller/secret")).unwrap();
    let half = Daemon::start_controller(&pool.config("key")).err().unwrap();
    assert!(half.to_string().contains("secret: missing"), "{half}");
    // With its state back, everything is as it was.
    fs::remove_dir_all(pool.path("controller")).unwrap();
    fs::rename(pool.path("lost"), pool.path("controller")).unwrap();
    let _controller = pool.controller();
    let _node = Daemon::start_storage(&pool.config("key"), "s0").unwrap();
    let client = pool.client();
    let request = Request::DestroyPersistent { name: "kept".into(), hurry: false };
    client.request(request).unwrap();
}

/// The controller's reply to these bytes, up to the end of the connection.
fn reply_to(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // It may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn malformed_messages_are_refused_and_the_controller_keeps_running() {
    let pool = TestPool::new(1);
    let _controller = pool.controller();
    let refused = |bytes: &[u8], reason: &str| {
        let reply = reply_to(pool.controller, bytes);
        assert!(reply.contains(reason) && !reply.contains("granularity"), "{reply}");
    };
    refused(b"GET / HTTP/1.1\r\n\r\nUser-Agent: none", "not a Forebay peer");
    refused(&[0xff; 5000], "not a Forebay peer");
    let query = frame("{\"query\":[1,\"status\"]}");
    refused(&query, "unexpected kind of frame");
    let mut huge = query.clone();
    huge[8..12].fill(0xff);
    refused(&huge, "too long");
    let opening = |version: u16, method: u8| {
        let mut bytes = Vec::new();
        let fields = (Kind::Handshake, Flags::default(), 0);
        let message = (version, method, vec![7u8; 48]);
        encode(&mut bytes, fields, &message, 0, 1000).unwrap();
        bytes.extend(&query);
        bytes
    };
    refused(&opening(9, 0), "version mismatch");
    refused(&opening(2, 0), "authentication failed");
    refused(&opening(2, 1), "authentication failed: the client uses MUNGE");
    // On a Unix socket the kernel identifies the client.
    let local = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(pool.path("controller.socket")).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    };
    assert!(local(&query).contains("cannot decode"));
    let hello = frame("{\"version\":12,\"role\":{\"client\":null}}");
    let reply = local(&hello);
    assert!(reply.contains("version mismatch") && reply.contains("version 12"));
    assert!(reply.contains("the daemon versions 9 to 11; upgrade the daemon"), "{reply}");
    // A peer of the release before names one version, one of a later release all that it speaks.
    for (versions, agreed) in [
        ("\"version\":9", 9),
        ("\"version\":9,\"newest\":12", 11),
        ("\"version\":8,\"newest\":9", 9),
    ] {
        let reply = local(&frame(&format!("{{{versions},\"role\":{{\"client\":null}}}}")));
        assert!(
            reply.contains("welcome") && reply.contains(&format!("\"version\":{agreed}")),
            "{versions}: {reply}"
        );
    }
    assert_eq!(pool.client().status().unwrap().nodes.len(), 1);
}

#[test]
fn unusable_key_file_is_a_configuration_error() {
    let pool = TestPool::new(1);
    pool.write_key("short", b"short");
    pool.write_key("open", b"a key that all can read");
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(pool.path("open"), open).unwrap();
    for (key, expected) in
        [("short", "at least 16 bytes"), ("absent", "key file"), ("open", "chmod 600")]
    {
        let config = PoolConfig::read(&pool.file(key, "controller")).unwrap();
        let error = Daemon::start_controller(&config).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is_bad_input());
    }
    let absent = ControllerClient::open(Path::new("/nonexistent/pool.toml")).err().unwrap();
    assert!(absent.to_string().contains("/nonexistent/pool.toml"));
}

#[test]
fn counters_of_daemons_reach_the_controller_and_prometheus() {
    let pool = TestPool::new(2);
    let controller = pool.controller();
    let names = ["s0", "s1"];
    let storage = names.map(|name| Daemon::start_storage(&pool.config("key"), name).unwrap());
    wait_for("the nodes are in service", || {
        names.iter().all(|name| is_online(&pool, name)).then_some(())
    });
    let client = pool.client();
    client.request(create_persistent("data", client.caller(), CAPACITY)).unwrap();
    let made = |host: &HostActivity| {
        let requests = &host.store.as_ref()?.requests;
        Some(requests.get("create_instance")?.latency.count())
    };
    let status = wait_for("both nodes tell that they made their part", || {
        let status = client.status().ok()?;
        let told = status.activity.iter().filter(|host| made(host) == Some(1));
        (told.count() == 2).then_some(status)
    });
    let (bytes, inodes) = status.instance_usage(status.instances[0].id).unwrap();
    assert_eq!((bytes, inodes), (0, 1), "the root alone");
    let page = exposition(&controller.status_source()().unwrap());
    let count = "forebay_store_request_duration_seconds_count";
    for name in names {
        let line = format!("{count}{{host=\"{name}\",kind=\"create_instance\"}} 1\n");
        assert!(page.contains(&line), "{line} in\n{page}");
        let online = format!("forebay_node_online{{node=\"{name}\",pool=\"p\"}} 1\n");
        assert!(page.contains(&online), "{online} in\n{page}");
    }
    let own = storage[0].status_source()().unwrap();
    assert_eq!(own.activity.len(), 1);
    assert_eq!(made(&own.activity[0]), Some(1));
    let [first, second] = storage;
    first.stop().unwrap();
    wait_for("a node that has ended tells nothing", || {
        let activity = client.status().ok()?.activity;
        (activity.len() == 1 && activity[0].host == "s1").then_some(())
    });
    second.stop().unwrap();
}
