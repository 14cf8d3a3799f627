//! Clients that use as much of a controller or an agent as they can do not block others.
//!
//! Needs root, because it acts as several users.

use crate::test_pool;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_daemon::{ControllerClient, Daemon};
use forebay_net::frame::{HEADER_BYTES, parse_header};
use test_pool::{TestPool, frame};

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
    frame("{\"version\":9,\"role\":{\"client\":null}}")
}

/// A connection to a Unix socket, and the reply to its handshake.
fn connect(socket: &Path) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&hello()).unwrap();
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).unwrap();
    let header = parse_header(&head, 1 << 20).unwrap();
    let mut body = vec![0; header.body];
    stream.read_exact(&mut body).unwrap();
    (stream, String::from_utf8(body).unwrap())
}

/// Opens 300 connections of one user: returns the accepted ones, and the number of refused ones.
fn open_many(socket: &Path) -> (Vec<UnixStream>, usize) {
    let said = (0..300).map(|_| connect(socket));
    let (welcome, refused): (Vec<_>, Vec<_>) =
        said.partition(|(_, said)| said.starts_with("{\"welcome\""));
    for (_, said) in &refused {
        assert!(said.contains("user 1000 has 256 connections"), "{said}");
    }
    let held = welcome.into_iter().map(|(stream, _)| stream).collect();
    (held, refused.len())
}

#[test]
fn a_thousand_unauthenticated_connections_do_not_block_a_client() {
    let pool = TestPool::new(1);
    let _controller = pool.controller();
    let mut silent: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(pool.controller).unwrap()).collect();
    let begun = Instant::now();
    let client = ControllerClient::open(&pool.file("key", "none")).unwrap();
    assert_eq!(client.status().unwrap().nodes.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(5));
    // The oldest have been closed.
    for stream in silent.iter_mut().take(480) {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}

#[test]
fn connections_of_one_user_are_limited() {
    let pool = TestPool::new(1);
    let _controller = pool.controller();
    let file = pool.file("key", "controller");
    let _agent = Daemon::start_agent(&pool.config("key"), "n1").unwrap();
    make_accessible(&pool);
    for socket in ["controller.socket", "agent/agent.socket"] {
        let socket = pool.path(socket);
        let (held, refused) = as_user(1000, || open_many(&socket));
        assert_eq!((held.len(), refused), (256, 44), "{}", socket.display());
        // Another user, and root, are accepted.
        let (_, said) = as_user(1001, || connect(&socket));
        assert!(said.starts_with("{\"welcome\""), "{said}");
        assert_eq!(ControllerClient::open(&file).unwrap().status().unwrap().nodes.len(), 1);
        drop(held);
        // Once they are closed, new ones are accepted.
        let begun = Instant::now();
        while !as_user(1000, || connect(&socket)).1.starts_with("{\"welcome\"") {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn client_that_reads_no_replies_is_refused_further_queries() {
    let pool = TestPool::new(1);
    let _controller = pool.controller();
    let (mut stream, _) = connect(&pool.path("controller.socket"));
    for number in 0..500 {
        let question = frame(&format!("{{\"query\":[{number},\"status\"]}}"));
        stream.write_all(&question).unwrap();
    }
    // The replies fill the socket, and the controller queues only a few more.
    let filled = || rustix::io::ioctl_fionread(&stream).unwrap();
    let (mut seen, mut since) = (filled(), Instant::now());
    while seen == 0 || since.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(50));
        if filled() != seen {
            (seen, since) = (filled(), Instant::now());
        }
        assert!(since.elapsed() < Duration::from_secs(60), "no replies");
    }
    let other = pool.client();
    assert_eq!(other.status().unwrap().nodes.len(), 1);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("granularity"), "{said}");
    assert!(said.contains("replies have not been read"));
    assert_eq!(other.status().unwrap().nodes.len(), 1);
}

fn make_accessible(pool: &TestPool) {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(pool.directory.path(), open).unwrap();
}
