//! Errors of listening.

use forebay_net::listener::bind_tcp;
use std::io::ErrorKind;

#[test]
fn bind_errors_name_a_remedy() {
    let first = bind_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let taken = bind_tcp(first.local_addr().unwrap()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(taken.to_string().contains("another port"), "{taken}");
    // An address for documentation (RFC 5737), which no host has.
    let nowhere = bind_tcp("192.0.2.1:7510".parse().unwrap()).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::AddrNotAvailable);
    assert!(nowhere.to_string().contains("no such address"), "{nowhere}");
}
