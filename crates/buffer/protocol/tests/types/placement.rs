//! Placements and capabilities.

use forebay_protocol::placement::{Capability, Placement};
use forebay_protocol::{Errno, Ino, InstanceId, NodeIndex};

#[test]
fn capability_is_valid_for_one_file_mode_and_instance_until_it_expires() {
    let secret = [7; 32];
    let capability = Capability::new(&secret, InstanceId(1), Ino(5), true, false, 100);
    assert_eq!(capability.verify(&secret, InstanceId(1), 100), Ok(()));
    assert_eq!(capability.verify(&secret, InstanceId(1), 101), Err(Errno::EKEYREJECTED));
    let forged = [
        Capability { write: true, ..capability },
        Capability { ino: Ino(6), ..capability },
        Capability { expires_at_s: 1000, ..capability },
        Capability { mac: [0; 32], ..capability },
    ];
    for forged in forged {
        assert_eq!(forged.verify(&secret, InstanceId(1), 50), Err(Errno::EACCES));
    }
    assert_eq!(capability.verify(&secret, InstanceId(2), 50), Err(Errno::EACCES));
    assert_eq!(capability.verify(&[8; 32], InstanceId(1), 50), Err(Errno::EACCES));
}

#[test]
fn placement_outside_its_nodes_is_refused() {
    let peers = ["a".to_owned(), "b".to_owned()];
    let places = Placement::distributed(1 << 16, &peers, [7; 32]);
    assert_eq!(places.len(), 2);
    assert!(places.iter().all(|place| place.validate().is_ok()));
    let bad = Placement { node: NodeIndex(2), ..places[0].clone() };
    assert!(bad.validate().is_err());
    let bad = Placement { peers: Vec::new(), ..places[0].clone() };
    assert!(bad.validate().is_err());
    assert!(Placement::single_node().validate().is_ok());
}
