//! A client that caches names and attributes under the lease on them.

use crate::World;
use crate::link::Link;
use crate::support::daemon::{INSTANCE, hello};
use forebay_protocol::message::{
    CACHE_LIFETIME_NS, CacheRecall, EVENT_SLOT, InodeRequest, LockRequest, NameRequest,
};
use forebay_protocol::{Errno, Ino, LeaseId, Reply, Request};
use forebay_store::node::ConnId;

/// The versions of the file and of the names that it has seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// `None`: only names, which may be cached while the file is open for writing.
    version: Option<u64>,
    names: u64,
}

pub struct Cacher {
    link: Link,
    /// The cached value, and the time at which it expires.
    cached: Option<(Seen, u64)>,
    /// The lease has been recalled since the pending request was sent.
    is_late: bool,
    /// The connection that waits for events, and the start of the daemon that it leads to.
    watch: Option<(ConnId, u64)>,
    watch_seq: u64,
    /// The recall to confirm.
    dropped: Option<LeaseId>,
    /// Reads that were served from the cache.
    pub served: u64,
    silent_until_ns: u64,
}

impl Cacher {
    pub fn new() -> Cacher {
        Cacher {
            link: Link::with_cache(),
            cached: None,
            is_late: false,
            watch: None,
            watch_seq: 0,
            dropped: None,
            served: 0,
            silent_until_ns: 0,
        }
    }

    pub fn was_lost(&self) -> bool {
        self.link.was_lost
    }

    pub fn act(&mut self, world: &mut World) {
        self.serve(world);
        if world.clock_ns < self.silent_until_ns {
            return;
        }
        if world.random.one_in(80) {
            self.silent_until_ns = world.clock_ns + world.random.below(2 * CACHE_LIFETIME_NS);
            if world.random.one_in(2) {
                self.link.break_connection(world);
                self.break_watch(world);
            }
            return;
        }
        if world.random.one_in(2) {
            self.take_events(world, true);
        }
        self.go_on(world, true);
        self.serve(world);
    }

    /// Cache, without faults.
    pub fn finish(&mut self, world: &mut World) {
        self.silent_until_ns = 0;
        self.take_events(world, false);
        self.go_on(world, false);
        self.serve(world);
    }

    /// Use what is cached.
    fn serve(&mut self, world: &World) {
        if let Some((seen, expires_ns)) = self.cached
            && world.clock_ns < expires_ns
        {
            let (version, names) = (world.acknowledged, world.acknowledged_names);
            assert!(seen.version.is_none_or(|seen| seen >= version), "{seen:?} after {version}");
            assert!(seen.names >= names, "names {} after {names}", seen.names);
            self.served += 1;
        }
    }

    fn go_on(&mut self, world: &mut World, faults: bool) {
        if self.link.pending.is_none() {
            let request = if world.random.one_in(2) {
                Request::Inode(InodeRequest::GetAttr { ino: world.file })
            } else {
                let name = world.last_name().unwrap_or_else(|| b"f".to_vec());
                Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name })
            };
            self.link.request(world, request);
            self.is_late = false;
        }
        let Some((pending, reply)) = self.link.go_on(world, faults) else {
            return;
        };
        assert!(
            matches!(reply, Reply::Attr(_) | Reply::Failed(Errno::ENOENT)),
            "{:?} was answered {reply:?}",
            pending.request
        );
        let is_file = matches!(&reply, Reply::Attr(attr) if attr.ino == world.file);
        if let Some((version, names)) = self.link.cacheable.filter(|_| !self.is_late) {
            let seen = Seen { version: is_file.then_some(version), names };
            self.cached = Some((seen, pending.sent_ns + CACHE_LIFETIME_NS));
        }
    }

    fn break_watch(&mut self, world: &mut World) {
        if let Some((conn, _)) = self.watch.take() {
            world.disconnect(conn);
        }
    }

    /// Take events, and wait for more.
    fn take_events(&mut self, world: &mut World, faults: bool) {
        if self.link.token.is_none() || self.link.epoch != world.epoch {
            return self.break_watch(world);
        }
        if self.watch.is_some_and(|(_, epoch)| epoch != world.epoch) {
            self.break_watch(world);
        }
        let Some((conn, _)) = self.watch else {
            let conn = world.connect();
            self.watch_seq += 1;
            let request = self.link.hello(hello(Some(INSTANCE), self.link.token, EVENT_SLOT));
            if let Some(Reply::Attached { .. }) = world.ask(conn, self.watch_seq, request) {
                self.watch = Some((conn, world.epoch));
                self.await_events(world, conn);
            }
            return;
        };
        let Some(reply) = world.reply(conn, self.watch_seq) else {
            return;
        };
        let Reply::Events { recalled_cache, .. } = reply else {
            return self.break_watch(world);
        };
        if faults && world.random.one_in(6) {
            return self.break_watch(world); // the events are lost
        }
        if recalled_cache.is_some() {
            (self.cached, self.is_late) = (None, true);
        }
        self.dropped = recalled_cache;
        if faults && world.random.one_in(6) {
            self.dropped = None;
            return self.break_watch(world); // the confirmation is lost
        }
        self.await_events(world, conn);
    }

    fn await_events(&mut self, world: &mut World, conn: ConnId) {
        self.watch_seq += 1;
        let cache = self.dropped.take().map_or(CacheRecall::Obeyed, CacheRecall::Dropped);
        let (known, returned) = (Vec::new(), Vec::new());
        let request = LockRequest::AwaitEvents { known, returned, cache };
        world.send(conn, self.watch_seq, Request::Lock(request));
    }
}
