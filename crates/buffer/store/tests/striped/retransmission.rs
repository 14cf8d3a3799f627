//! A retransmitted message may arrive after the effects of its answer.

use crate::support::daemon::INSTANCE;
use crate::world::{STRIPE_BYTES, World};
use forebay_protocol::message::TrailingField;
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload};
use forebay_protocol::{Ino, NodeIndex};
use forebay_store::objects::{ObjectId, Objects};

const METADATA_NODE: NodeIndex = NodeIndex(0);
const NODE: NodeIndex = NodeIndex(1);

#[test]
fn late_duplicate_of_a_resize_does_not_truncate_later_writes() {
    let mut world = World::new(1);
    let sender = Incarnation { epoch: 1000, nonce: 1 };
    let mut sequence = 0;
    let mut send = |world: &mut World, receiver, payload| {
        sequence += 1;
        let message = PeerMessage {
            instance: INSTANCE,
            from: METADATA_NODE,
            sender,
            receiver,
            sequence,
            payload,
            recalls_caches: TrailingField(true),
        };
        world.deliver(NODE, message);
    };
    send(&mut world, Incarnation::default(), PeerPayload::Probe);
    let receiver = world.last_sender(NODE).expect("it answers a probe");

    // A file whose last byte is on the node.
    let ino = Ino::new(METADATA_NODE, 1 << 30);
    let layout = world.layout();
    let stripes = (0..).find(|index| layout.node_of_stripe(ino, *index) == NODE);
    let length = (stripes.unwrap() + 1) * STRIPE_BYTES;
    let resize = |task, oldest| PeerPayload::ResizeObject { task, oldest, ino, length };
    let object = ObjectId { instance: INSTANCE, ino };
    let size = |world: &World| world.hosts[1].daemon.objects.stat(object).unwrap().size;
    send(&mut world, receiver, resize(1, 1));
    let resized = size(&world);
    assert!(world.write(NODE, object, resized, &[1; 100]));
    send(&mut world, receiver, resize(1, 1));
    assert_eq!(size(&world), resized + 100);

    // The next task does truncate it, and ends the one before.
    send(&mut world, receiver, resize(2, 2));
    assert_eq!(size(&world), resized);
    assert!(world.write(NODE, object, resized, &[1; 100]));
    send(&mut world, receiver, resize(1, 1));
    send(&mut world, receiver, resize(2, 2));
    assert_eq!(size(&world), resized + 100);
}
