//! Placements and capabilities.

use forebay_protocol::placement::{Capability, Placement};
use forebay_protocol::{Errno, HandleId, Ino, InstanceId, NodeIndex, SessionId};

#[test]
fn capability_is_valid_for_one_open_file_mode_user_and_instance() {
    let secret = [7; 32];
    let capability = Capability {
        ino: Ino(5),
        read: true,
        write: false,
        width: 3,
        session: SessionId(1),
        handle: HandleId(2),
        uid: 1000,
        epoch: 3,
        mac: [0; 32],
    };
    let capability = capability.issue(&secret, InstanceId(1));
    assert_eq!(capability.verify(&secret, InstanceId(1)), Ok(()));
    let forged = [
        Capability { write: true, ..capability },
        Capability { ino: Ino(6), ..capability },
        Capability { width: 4, ..capability },
        Capability { session: SessionId(2), ..capability },
        Capability { handle: HandleId(3), ..capability },
        Capability { uid: 0, ..capability },
        Capability { epoch: 4, ..capability },
        Capability { mac: [0; 32], ..capability },
    ];
    for forged in forged {
        assert_eq!(forged.verify(&secret, InstanceId(1)), Err(Errno::EACCES));
    }
    assert_eq!(capability.verify(&secret, InstanceId(2)), Err(Errno::EACCES));
    assert_eq!(capability.verify(&[8; 32], InstanceId(1)), Err(Errno::EACCES));
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
