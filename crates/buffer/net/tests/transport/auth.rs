//! Identities and keys.

use forebay_net::auth::{PoolKey, unix_peer};
use forebay_net::munge::Munge;
use forebay_protocol::Errno;
use std::os::unix::net::UnixStream;

#[test]
fn kernel_identifies_the_peer_of_a_unix_socket() {
    let (a, _b) = UnixStream::pair().unwrap();
    let peer = unix_peer(&a).unwrap();
    assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    assert!(peer.trusted && peer.local);
}

#[test]
fn short_pool_key_is_refused() {
    assert!(PoolKey::new(b"sixteen bytes ok").is_ok());
    assert_eq!(PoolKey::new(b"short").err(), Some(Errno::EINVAL));
}

#[test]
fn credential_without_munged_fails_with_the_reason() {
    let munge = Munge::new(Some("/nonexistent/munge.socket".into()));
    let error = munge.and_then(|munge| munge.encode(b"x")).unwrap_err();
    assert!(error.to_string().contains("MUNGE"), "{error}");
}
