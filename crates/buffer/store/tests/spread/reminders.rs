//! What is said again may arrive after the answer to it has been acted upon.

use crate::world::{INSTANCE, STRIPE, World};
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload};
use forebay_protocol::{Ino, NodeIndex};
use forebay_store::objects::{ObjectId, Objects};

const HOME: NodeIndex = NodeIndex(0);
const NODE: NodeIndex = NodeIndex(1);

#[test]
fn a_late_reminder_to_cut_a_file_does_not_cut_what_was_written_since() {
    let mut world = World::new(1);
    let sender = Incarnation {
        epoch: 1000,
        nonce: 1,
    };
    let mut number = 0;
    let mut say = |world: &mut World, receiver, say| {
        number += 1;
        let message = PeerMessage {
            instance: INSTANCE,
            from: HOME,
            sender,
            receiver,
            sequence: number,
            payload: say,
        };
        world.deliver(NODE, message);
    };
    say(&mut world, Incarnation::default(), PeerPayload::Probe);
    let receiver = world.last_sender(NODE).expect("it answers a greeting");

    // A file whose last byte is on the node.
    let ino = Ino::new(HOME, 1 << 30);
    let layout = world.layout();
    let stripes = (0..).find(|index| layout.node_of_stripe(ino, *index) == NODE);
    let length = (stripes.unwrap() + 1) * STRIPE;
    let resize = |task, oldest| PeerPayload::ResizeObject {
        task,
        oldest,
        ino,
        length,
    };
    let object = ObjectId {
        instance: INSTANCE,
        ino,
    };
    let size = |world: &World| world.hosts[1].objects.stat(object).unwrap().size;
    say(&mut world, receiver, resize(1, 1));
    let cut = size(&world);
    assert!(world.write(NODE, object, cut, &[1; 100]));
    say(&mut world, receiver, resize(1, 1));
    assert_eq!(size(&world), cut + 100);

    // The next one does cut it, and the one before is over then.
    say(&mut world, receiver, resize(2, 2));
    assert_eq!(size(&world), cut);
    assert!(world.write(NODE, object, cut, &[1; 100]));
    say(&mut world, receiver, resize(1, 1));
    say(&mut world, receiver, resize(2, 2));
    assert_eq!(size(&world), cut + 100);
}
