//! A client on the daemon's host that writes the file through a descriptor, without the daemon, and
//! sets its length through the daemon.

use crate::link::{Link, close_request, open_request};
use crate::{LEASE_NS, MAX_DELAY_NS, World};
use forebay_protocol::message::{
    FileRequest, InodeRequest, NameRequest, NewInode, OpenMode, SetAttr,
};
use forebay_protocol::{Errno, FileKind, Ino, Reply, Request};

const MODE: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: true, ..OpenMode::NONE };

#[derive(Default)]
pub struct Writer {
    link: Link,
    /// The file is open, as far as the client knows.
    is_open: bool,
    /// It was silent for so long that its session is over.
    pub was_lost: bool,
    silent_until_ns: u64,
}

impl Writer {
    pub fn is_done(&self) -> bool {
        !self.is_open && self.link.pending.is_none()
    }

    pub fn act(&mut self, world: &mut World) {
        if self.is_open && self.may_write(world) && world.random.one_in(3) {
            let version = world.change();
            world.acknowledge(version);
            return;
        }
        if world.clock_ns < self.silent_until_ns {
            return;
        }
        if world.random.one_in(60) {
            // It does not use the daemon, and does not notice a restart.
            self.silent_until_ns = world.clock_ns + world.random.below(2 * LEASE_NS);
            return;
        }
        if self.link.pending.is_none() {
            let request = match world.random.below(5) {
                0 | 1 if self.is_open => close_request(),
                0 | 1 => open_request(world, MODE),
                2 => truncation(world),
                3 => creation(world),
                _ => return,
            };
            self.begin(world, request);
        }
        self.go_on(world);
    }

    /// Close the file, also at a daemon that has been started again.
    pub fn finish(&mut self, world: &mut World) {
        if self.link.pending.is_none() && (self.is_open || self.link.answered_epoch != world.epoch)
        {
            self.begin(world, close_request());
        }
        self.go_on(world);
    }

    /// Through a descriptor it can write also while the daemon is down, or has been started again. After
    /// a second restart the daemon does not know any more that the session was lost.
    fn may_write(&self, world: &World) -> bool {
        self.link.epoch == world.epoch || self.link.epoch + 1 == world.epoch
    }

    fn begin(&mut self, world: &World, request: Request) {
        if let Request::File(FileRequest::Close { .. }) = request {
            (self.is_open, self.link.open) = (false, None);
        }
        self.link.request(world, request);
    }

    fn go_on(&mut self, world: &mut World) {
        let taken = self.link.go_on(world, false);
        self.was_lost |= self.link.was_lost;
        let waits_ns = world.clock_ns - self.link.last_sent_ns;
        let waits = taken.is_none() && self.link.is_waiting(world);
        assert!(!waits || waits_ns < MAX_DELAY_NS, "a request waits for {waits_ns} ns");
        let Some((pending, reply)) = taken else {
            return;
        };
        match (&pending.request, reply) {
            (Request::File(FileRequest::Open { .. }), Reply::Opened { .. }) => {
                (self.is_open, self.link.open) = (true, Some(MODE));
            }
            (Request::File(FileRequest::Close { .. }), Reply::Done) => {}
            (Request::Inode(InodeRequest::SetAttr { set, .. }), Reply::Attr(_)) => {
                if let Some(version) = world.version_of_length(set.size.unwrap()) {
                    world.acknowledge(version);
                }
            }
            (Request::Name(NameRequest::Mknod { name, .. }), Reply::Attr(_)) => {
                let number = std::str::from_utf8(&name[1..]).unwrap().parse().unwrap();
                world.acknowledge_name(number);
            }
            // The other writer was faster, or it did so itself before its session expired.
            (Request::Name(_), Reply::Failed(Errno::EEXIST)) => {}
            (request, reply) => panic!("{request:?} was answered {reply:?}"),
        }
    }
}

/// The next name.
fn creation(world: &World) -> Request {
    Request::Name(NameRequest::Mknod {
        parent: Ino::ROOT,
        name: World::name(world.names + 1),
        new: NewInode::Node(FileKind::File, 0),
        mode: 0o644.into(),
    })
}

fn truncation(world: &mut World) -> Request {
    let size = Some(world.new_length());
    let set = SetAttr { size, ..SetAttr::default() };
    Request::Inode(InodeRequest::SetAttr { ino: world.file, handle: None, set })
}
