//! Those who take as much of a controller or an agent as they can: others are served all the same.
//!
//! Needs root, because it acts as several users.
#![allow(clippy::unwrap_used)] // a test: what cannot be unwrapped has failed

mod site;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_daemon::ControllerClient;
use forebay_daemon::hosts::{AgentDaemon, RemoteController};
use site::{TestPool, frame};

/// Runs `act` on a thread of another user.
fn as_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        // SAFETY: the raw calls change the credentials of this thread only, which ends after.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setresgid, uid, uid, uid), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn hello() -> Vec<u8> {
    let key = serde_json::to_string(&[7; 32]).unwrap();
    frame(&format!(
        "{{\"hello\":{{\"version\":4,\"role\":{{\"client\":null}},\"key\":{key}}}}}"
    ))
}

/// What is said to a greeting on a Unix socket.
fn greet(socket: &Path) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(&hello()).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    let length = u32::from_le_bytes(*head[4..].first_chunk().unwrap());
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).unwrap();
    (stream, String::from_utf8(body).unwrap())
}

/// The connections of one user that are let in and how many are refused, of 300.
fn crowd(socket: &Path) -> (Vec<UnixStream>, usize) {
    let said = (0..300).map(|_| greet(socket));
    let (welcome, refused): (Vec<_>, Vec<_>) =
        said.partition(|(_, said)| said.starts_with("{\"welcome\""));
    for (_, said) in &refused {
        assert!(said.contains("user 1000 has 256 connections"), "{said}");
    }
    let held = welcome.into_iter().map(|(stream, _)| stream).collect();
    (held, refused.len())
}

#[test]
fn a_thousand_who_say_nothing_keep_nobody_out() {
    let site = TestPool::new(1);
    let _controller = site.controller();
    let mut silent: Vec<TcpStream> = (0..1000)
        .map(|_| TcpStream::connect(site.controller).unwrap())
        .collect();
    let begun = Instant::now();
    let remote = RemoteController::open(&site.file("key", "none")).unwrap();
    assert_eq!(remote.status().unwrap().nodes.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(5));
    // The oldest have been hung up on.
    for stream in silent.iter_mut().take(480) {
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}

#[test]
fn a_user_does_not_take_all_connections() {
    let site = TestPool::new(1);
    let _controller = site.controller();
    let file = site.file("key", "controller");
    let _agent = AgentDaemon::start(&site.config("key"), "n1").unwrap();
    open_to_all(&site);
    for socket in ["controller.socket", "agent/agent.socket"] {
        let socket = site.path(socket);
        let (held, refused) = as_user(1000, || crowd(&socket));
        assert_eq!((held.len(), refused), (256, 44), "{}", socket.display());
        // Another user, and root, get in.
        let (_, said) = as_user(1001, || greet(&socket));
        assert!(said.starts_with("{\"welcome\""), "{said}");
        assert_eq!(
            RemoteController::open(&file)
                .unwrap()
                .status()
                .unwrap()
                .nodes
                .len(),
            1
        );
        drop(held);
        // When they have gone, there is room again.
        let begun = Instant::now();
        while !as_user(1000, || greet(&socket))
            .1
            .starts_with("{\"welcome\"")
        {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Who asks for much and takes nothing gets no more than a little at a time.
#[test]
fn who_takes_no_answers_gets_no_more_of_them() {
    let site = TestPool::new(1);
    let _controller = site.controller();
    let (mut stream, _) = greet(&site.path("controller.socket"));
    for number in 0..500 {
        let question = frame(&format!("{{\"query\":[{number},\"status\"]}}"));
        stream.write_all(&question).unwrap();
    }
    // The socket is full by now, and what is behind it in the controller is no more than a little.
    let other = site.remote();
    assert_eq!(other.status().unwrap().nodes.len(), 1);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("granularity"), "{said}");
    assert!(said.contains("answers have not been taken"));
    assert_eq!(other.status().unwrap().nodes.len(), 1);
}

fn open_to_all(site: &TestPool) {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.directory.path(), open).unwrap();
}
