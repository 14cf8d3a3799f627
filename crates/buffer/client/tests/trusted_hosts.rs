//! Root of a host that is no administrator's: it uses instances, and does not administer the daemon.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::connection::Connection;
use forebay_protocol::message::{InodeRequest, StatFs, TrailingField};
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload};
use forebay_protocol::{Call, Errno, Ino, NodeIndex, Request};
use forebay_store::daemon::{self, Daemon, TrustedHosts};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use support::{INSTANCE, Temporary, make_instance};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn key() -> PoolKey {
    PoolKey::new(b"a key for tests only").unwrap()
}

fn daemon(temporary: &Temporary, administrators: &[IpAddr], storage: &[IpAddr]) -> Daemon {
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    options.key = Some(key());
    options.trusted_hosts =
        Some(TrustedHosts { administrators: administrators.to_vec(), storage: storage.to_vec() });
    Daemon::start(options).unwrap()
}

fn options() -> ClientOptions {
    ClientOptions { key: Some(key()), ..ClientOptions::default() }
}

/// Whether the daemon accepts a message that another storage daemon of the instance would send.
fn accepts_peer(daemon: &Daemon) -> bool {
    let auth = Authenticator { key: Some(key()), ..Authenticator::default() };
    let address = daemon.tcp_address().unwrap();
    let mut connection = Connection::connect(&address, &auth, Duration::from_secs(5)).unwrap();
    let message = PeerMessage {
        instance: INSTANCE,
        from: NodeIndex(1),
        sender: Incarnation::default(),
        receiver: Incarnation::default(),
        sequence: 1,
        payload: PeerPayload::Probe,
        recalls_caches: TrailingField(true),
    };
    connection.send(&Call::new(1, Request::Peer(Box::new(message))), &[]).unwrap();
    // The reply to a call that is refused for another reason.
    let reply = connection.call(&Call::new(2, InodeRequest::StatFs), &[], &mut []);
    reply.is_ok_and(|response| response.reply == forebay_protocol::Reply::Failed(Errno::ENOTCONN))
}

#[test]
fn root_of_other_hosts_uses_instances_and_administers_nothing() {
    let temporary = Temporary::new();
    let limited = daemon(&temporary, &[ELSEWHERE], &[ELSEWHERE]);
    make_instance(limited.address(), 1 << 20);
    let refused = Admin::connect(limited.tcp_address().unwrap(), options()).map(drop);
    assert_eq!(refused, Err(Errno::EACCES));
    assert!(!accepts_peer(&limited));
    let fs = Fs::attach(limited.tcp_address().unwrap(), INSTANCE, options()).unwrap();
    fs.mkdir(Ino::ROOT, b"d", 0o755).unwrap();
    let StatFs { .. } = fs.statfs().unwrap();
    drop(fs);
    limited.stop().unwrap();
    let open = daemon(&temporary, &[HERE], &[HERE]);
    Admin::connect(open.tcp_address().unwrap(), options()).unwrap().instances().unwrap();
    assert!(accepts_peer(&open));
}
