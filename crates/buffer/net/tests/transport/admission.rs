//! Limits of connections, worker threads and requests.

use forebay_net::admission::{
    AdmissionControl, ConnectionLimits, ConnectionPermit, Principal, SharedAdmission, WorkerPermits,
};
use forebay_net::stream::Stream;
use forebay_protocol::Errno;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn small() -> ConnectionLimits {
    ConnectionLimits {
        trusted: 3,
        users: 4,
        user: 3,
        unauthenticated: 2,
        authenticating: 4,
        workers: 3,
        user_workers: 2,
        request_rate: 10.0,
        request_burst: 20.0,
        ..ConnectionLimits::default()
    }
}

fn connect(admission: &SharedAdmission) -> (ConnectionPermit, Stream) {
    let (near, far) = UnixStream::pair().unwrap();
    (admission.add(&Arc::new(Stream::Unix(near))), Stream::Unix(far))
}

#[test]
fn oldest_unauthenticated_connection_is_replaced_and_handshakes_time_out() {
    let mut control = AdmissionControl::new(small());
    let begun = Instant::now();
    let later = |seconds| begun + Duration::from_secs(seconds);
    let user = Principal::User(7);
    assert_eq!(control.add(1, later(0)), None);
    assert_eq!(control.add(2, later(1)), None);
    assert_eq!(control.add(3, later(2)), Some(1));
    control.admit(3, user).unwrap();
    assert!(!control.is_unauthenticated(3) && control.is_unauthenticated(2));
    control.note_message(2);
    assert_eq!(control.take_timed_out(later(10)), None);
    assert_eq!(control.take_timed_out(later(11)), Some(2));
    assert_eq!(control.take_timed_out(later(11)), None);
    assert_eq!(control.take_timed_out(later(12)), Some(3), "no message has arrived");
    assert_eq!(control.next_timeout(), None);
    assert_eq!(control.add(4, later(13)), None);
    control.note_message(4);
    control.admit(4, user).unwrap();
    assert_eq!(control.next_timeout(), None, "admitted connections may idle");
}

#[test]
fn connections_being_verified_are_not_replaced() {
    let mut control = AdmissionControl::new(small());
    let now = Instant::now();
    for conn in 1..5 {
        assert_eq!(control.add(conn, now), None);
        control.set_authenticating(conn).unwrap();
    }
    assert_eq!(control.add(5, now), None);
    assert_eq!(control.add(6, now), None);
    let full = control.set_authenticating(6).unwrap_err();
    assert!(full.to_string().contains("4 connections"), "{full}");
    assert_eq!(control.add(7, now), Some(5));
    // Proofs were refused.
    control.remove(1);
    control.remove(2);
    control.set_authenticating(6).unwrap();
    assert_eq!(control.add(8, now), None);
    control.admit(6, Principal::Trusted).unwrap();
    assert_eq!(control.add(9, now), Some(7));
    assert_eq!(control.take_timed_out(now + Duration::from_secs(11)), Some(3));
}

#[test]
fn user_at_its_limit_is_refused_and_others_are_admitted() {
    let mut control = AdmissionControl::new(small());
    let user = Principal::User;
    for conn in 0..3 {
        control.admit(conn, user(7)).unwrap();
    }
    let refused = control.admit(3, user(7)).unwrap_err();
    assert!(refused.to_string().contains("user 7 has 3 connections"));
    assert_eq!(Errno::from(refused), Errno::EMFILE);
    control.admit(4, user(8)).unwrap();
    assert!(control.admit(5, user(9)).is_err(), "users have all of theirs");
    control.admit(6, Principal::Trusted).unwrap();
    control.remove(0);
    control.remove(0);
    control.admit(7, user(7)).unwrap();
    assert!(control.admit(8, user(9)).is_err());
    assert_eq!(control.principal(7), Some(user(7)));
    control.admit(9, Principal::Trusted).unwrap();
    control.admit(10, Principal::Trusted).unwrap();
    assert!(control.admit(11, Principal::Trusted).is_err());
}

#[test]
fn user_whose_jobs_run_on_many_hosts_has_connections_from_each() {
    let mut control = AdmissionControl::new(ConnectionLimits { users: 1000, user: 3, ..small() });
    let of_host = |host: u8| Principal::UserOnHost(7, IpAddr::from([10, 0, 0, host]));
    let hosts = (0..200).flat_map(|host| [host; 3]);
    for (conn, host) in (0..).zip(hosts) {
        control.admit(conn, of_host(host)).unwrap();
    }
    let refused = control.admit(900, of_host(9)).unwrap_err();
    assert!(refused.to_string().contains("user 7 has 3 connections from 10.0.0.9"), "{refused}");
    // Those of the user that no agent has made count for themselves.
    control.admit(900, Principal::User(7)).unwrap();
    control.remove(27);
    control.admit(901, of_host(9)).unwrap();
}

#[test]
fn requests_from_all_hosts_of_a_user_have_one_rate_and_a_longest_delay() {
    let admission = SharedAdmission::new(small());
    let now = Instant::now();
    let connected: Vec<_> = (0..4)
        .map(|host| {
            let connected = connect(&admission);
            let host = IpAddr::from([10, 0, 0, host]);
            connected.0.admit(Principal::UserOnHost(7, host)).unwrap();
            connected
        })
        .collect();
    let delay = |host: usize| connected[host].0.request_delay(now, 1.0);
    for request in 0..20 {
        assert_eq!(delay(request % 4), Duration::ZERO);
    }
    assert_eq!(delay(0), Duration::from_millis(100));
    assert_eq!(delay(1), Duration::from_millis(200));
    let delays: Vec<Duration> = (0..1000).map(|request| delay(request % 4)).collect();
    assert_eq!(delays.iter().max(), Some(&Duration::from_secs(10)));
}

#[test]
fn worker_permit_is_free_again_when_dropped() {
    let permits = WorkerPermits::new(small());
    let user = Principal::User;
    let first = permits.take(user(7)).unwrap();
    let _second = permits.take(user(7)).unwrap();
    assert!(permits.take(user(7)).is_none() && !permits.is_free(user(7)));
    let _root = permits.take(Principal::Trusted).unwrap();
    assert!(permits.take(user(8)).is_none(), "three in all");
    drop(first);
    assert_eq!(permits.in_use(), 2);
    assert!(permits.is_free(user(7)) && permits.is_free(user(8)));
}

#[test]
fn socket_of_the_oldest_unauthenticated_connection_is_shut_down() {
    let admission = SharedAdmission::new(small());
    let (_first, closed) = connect(&admission);
    let (second, _there) = connect(&admission);
    second.admit(Principal::User(7)).unwrap();
    // One whose proof is being verified does not count.
    let (verifying, _there) = connect(&admission);
    verifying.set_authenticating().unwrap();
    let (_third, _there) = connect(&admission);
    let (_fourth, _there) = connect(&admission);
    let mut descriptors = VecDeque::new();
    assert_eq!(closed.receive(&mut [0], &mut descriptors).unwrap(), 0);
    second.admit(Principal::User(7)).unwrap();
}

#[test]
fn requests_beyond_the_rate_are_delayed() {
    let start = Instant::now();
    let admission = SharedAdmission::new(small());
    let admit = |principal| {
        let (permit, _) = connect(&admission);
        permit.admit(principal).unwrap();
        permit
    };
    let one = admit(Principal::User(7));
    let delays: Vec<u128> = (0..22).map(|_| one.request_delay(start, 1.0).as_millis()).collect();
    assert_eq!(delays[19..], [0, 100, 200]);
    let later = start + Duration::from_secs(1);
    assert_eq!(one.request_delay(later, 8.0), Duration::ZERO);
    assert_eq!(one.request_delay(later, 5.0).as_millis(), 500);
    assert!(one.request_delay(later, 20.0) > Duration::from_secs(1));
    // Other users and root are not delayed.
    let other = admit(Principal::User(8));
    let root = admit(Principal::Trusted);
    assert_eq!(other.request_delay(later, 20.0), Duration::ZERO);
    assert_eq!(root.request_delay(later, 1e9), Duration::ZERO);
}
