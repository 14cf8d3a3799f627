//! Random histories of a mount with a delegation, whose removals and creates are delayed, whose replies are
//! lost, and which falls silent, while another client comes and goes, and the daemon is killed and started again.
//!
//! Invariants:
//! - while another client is attached, no change is made that the mount has reported before;
//! - a mount that has returned its delegation has had all its changes made;
//! - a change is refused only if the mount did not answer a recall in time;
//! - in the end each change was made, or refused, and files without names are gone with the mount.

use super::prepared::{OPEN, create, inodes, plain, prepare};
use super::support::seeds::{self, Random};
use super::{Client, SECOND_NS, Site, names_of, unlink};
use forebay_protocol::message::{
    CacheRecall, Delegated, EVENT_SLOT, FileRequest, NameRequest, NewInode, OpenMode,
    RECOVERY_SLOT, SessionRequest,
};
use forebay_protocol::{Errno, FileKind, HandleId, Ino, LeaseId, Reply, Request};
use forebay_store::node::ConnId;
use std::collections::BTreeSet;

const STEPS: usize = 400;
const SLOTS: u32 = 3;
const KIND: (bool, bool) = (true, true);

/// A change of a name that was reported and is not acknowledged.
struct Outstanding {
    name: String,
    call: Delegated,
    /// The number of changes reported before.
    order: usize,
}

impl Outstanding {
    fn creates(&self) -> bool {
        matches!(self.call.request, NameRequest::Create { .. })
    }
}

/// A connection with at most one change.
struct Slot {
    conn: Option<ConnId>,
    seq: u64,
    outstanding: Option<Outstanding>,
}

struct History {
    site: Site,
    random: Random,
    client: Client,
    slots: Vec<Slot>,
    is_watching: bool,
    /// The mount neither sends nor receives.
    is_silent: bool,
    /// The number of the delegation and the end of the time for which the mount uses it.
    grant: Option<(u64, u64)>,
    recall: Option<LeaseId>,
    /// Whether the other client may have attached without an answer of the mount.
    may_be_revoked: bool,
    /// All names that the mount takes to exist, and all that it ever made.
    known: BTreeSet<String>,
    made: BTreeSet<String>,
    /// Names that the mount has reported as created, and that were refused.
    not_made: BTreeSet<String>,
    /// All open handles, and those of prepared files that have not been used.
    handles: Vec<(HandleId, Ino)>,
    prepared: Vec<HandleId>,
    /// The daemon has restarted, and does not know the handles.
    must_recover: bool,
    recovery_seq: u64,
    reported: usize,
    other: Option<Client>,
    /// The names when the other client attached.
    seen: BTreeSet<String>,
    returned: usize,
    refused: usize,
    created: usize,
}

impl History {
    fn new(seed: u64) -> History {
        let mut site = Site::large();
        let client = site.mount();
        let new = |_| Slot { conn: None, seq: 0, outstanding: None };
        History {
            site,
            random: Random::of(seed),
            client,
            slots: (0..SLOTS).map(new).collect(),
            is_watching: true,
            is_silent: false,
            grant: None,
            recall: None,
            may_be_revoked: false,
            known: BTreeSet::new(),
            made: BTreeSet::new(),
            not_made: BTreeSet::new(),
            handles: Vec::new(),
            prepared: Vec::new(),
            must_recover: false,
            recovery_seq: 0,
            reported: 0,
            other: None,
            seen: BTreeSet::new(),
            returned: 0,
            refused: 0,
            created: 0,
        }
    }

    fn names(&self) -> BTreeSet<String> {
        let made = self.made.iter().map(String::as_str);
        names_of(&self.site, made).into_iter().map(str::to_owned).collect()
    }

    fn is_outstanding(&self) -> bool {
        self.slots.iter().any(|slot| slot.outstanding.is_some())
    }

    fn step(&mut self) {
        match self.random.below(19) {
            0..=2 => {
                let ns = self.random.below(7 * SECOND_NS / 10);
                self.site.pass(ns);
            }
            3 if self.random.one_in(4) => self.site.pass(6 * SECOND_NS),
            4 if self.random.one_in(3) => {
                self.site.restart();
                self.slots.iter_mut().for_each(|slot| slot.conn = None);
                self.is_watching = false;
                self.must_recover = true;
                if let Some(mut other) = self.other.take() {
                    other.return_to(&mut self.site).unwrap();
                    self.other = Some(other);
                }
            }
            5 => self.is_silent = self.random.one_in(4),
            6 | 7 => self.other_client(),
            8 | 9 if !self.is_silent => self.make(),
            10 | 11 => self.report_removal(),
            12 | 13 if !self.is_silent => self.prepare(),
            14 | 15 => self.report_create(),
            _ if !self.is_silent => {
                self.process_recall();
                let slot = self.random.below(SLOTS.into()) as usize;
                self.deliver(slot);
            }
            _ => {}
        }
        if self.other.is_some() {
            assert_eq!(self.names(), self.seen, "another client has seen this");
        }
    }

    /// The mount makes a file, when all changes are acknowledged, as all its other requests.
    fn make(&mut self) {
        if self.is_outstanding() {
            return;
        }
        self.connect(0);
        let name = format!("f{}", self.made.len());
        let (parent, mode) = (Ino::ROOT, 0o644.into());
        let (new, bytes) = (NewInode::Node(FileKind::File, 0), name.as_bytes().to_vec());
        let make = NameRequest::Mknod { parent, name: bytes, new, mode };
        let (conn, seq) = self.next_call(0);
        let sent_at = self.site.clock_ns;
        let mut reply = self.site.call(conn, seq, make.into());
        // After a restart the daemon waits for leases that the other client may have.
        while reply.is_none() && self.site.clock_ns < sent_at + 3 * SECOND_NS {
            self.site.pass(SECOND_NS / 5);
            reply = self.site.reply(conn, seq);
        }
        self.made.insert(name.clone());
        match reply {
            Some(Reply::Delegating { number, .. }) => self.grant(number, sent_at),
            Some(Reply::Attr(_) | Reply::WithDirectory { .. }) => {}
            other => panic!("{other:?}"),
        }
        self.known.insert(name.clone());
        if self.other.is_some() {
            self.seen.insert(name);
        }
    }

    fn grant(&mut self, number: u64, sent_at: u64) {
        assert!(self.other.is_none(), "only one client has a delegation");
        if self.recall.is_none() {
            self.grant = Some((number, sent_at + SECOND_NS));
        }
    }

    /// The number of the delegation, and an idle slot, if the mount may report a change.
    fn may_report(&self) -> Option<(u64, usize)> {
        let (number, until) = self.grant.filter(|_| self.recall.is_none())?;
        let idle = self.slots.iter().position(|slot| slot.outstanding.is_none())?;
        (self.site.clock_ns < until).then_some((number, idle))
    }

    fn report(&mut self, slot: usize, name: String, call: Delegated) {
        let order = self.reported;
        self.reported += 1;
        self.slots[slot].seq += 1;
        self.slots[slot].outstanding = Some(Outstanding { name, call, order });
    }

    /// The mount reports a removal as made.
    fn report_removal(&mut self) {
        if let Some((number, slot)) = self.may_report()
            && let Some(name) = self.known.pop_last()
        {
            let call = unlink(number, &name, self.site.clock_ns);
            self.report(slot, name, call);
        }
    }

    /// The mount reports a prepared file as created.
    fn report_create(&mut self) {
        if let Some((number, slot)) = self.may_report()
            && let Some(handle) = self.prepared.pop()
        {
            let name = format!("f{}", self.made.len());
            self.made.insert(name.clone());
            self.known.insert(name.clone());
            let call = create(number, handle, &name, self.site.clock_ns);
            self.report(slot, name, call);
        }
    }

    /// The mount has a file prepared.
    fn prepare(&mut self) {
        let Some((number, slot)) = self.may_report() else {
            return;
        };
        self.connect(slot);
        let handle = HandleId(100 + self.handles.len() as u64);
        let (conn, seq) = self.next_call(slot);
        let reply = self.site.call(conn, seq, prepare(number, handle).into()).unwrap();
        match plain(reply) {
            Reply::Opened { attr, created: true, .. } => {
                self.handles.push((handle, attr.ino));
                self.prepared.push(handle);
            }
            Reply::Failed(Errno::EKEYREVOKED) => assert!(self.may_be_revoked),
            other => panic!("{other:?}"),
        }
    }

    /// After a restart of the daemon, the mount opens its handles again before it does anything else.
    fn recover(&mut self) {
        if !std::mem::take(&mut self.must_recover) {
            return;
        }
        let next = (RECOVERY_SLOT, self.recovery_seq + 1);
        let (conn, _) = self.site.attach(KIND, Some(self.client.token), next).unwrap();
        for (handle, ino) in self.handles.clone() {
            self.recovery_seq += 1;
            let open = OpenMode { descriptor: false, ..OPEN };
            let reopen = FileRequest::Open { ino, handle, open };
            let reply = self.site.call(conn, self.recovery_seq, reopen.into()).unwrap();
            assert!(matches!(plain(reply), Reply::Opened { .. }));
        }
    }

    fn connect(&mut self, slot: usize) {
        self.recover();
        let Slot { conn: None, seq, outstanding } = &self.slots[slot] else {
            return;
        };
        let next = if outstanding.is_some() { *seq } else { *seq + 1 };
        // The first slots are those of the mount's beginning.
        let number = slot as u32 + 1;
        let joined = self.site.attach(KIND, Some(self.client.token), (number, next)).unwrap();
        self.slots[slot].conn = Some(joined.0);
    }

    fn next_call(&mut self, slot: usize) -> (ConnId, u64) {
        self.slots[slot].seq += 1;
        (self.slots[slot].conn.unwrap(), self.slots[slot].seq)
    }

    /// A change arrives at the daemon, perhaps again.
    fn deliver(&mut self, slot: usize) {
        self.connect(slot);
        let Slot { conn: Some(conn), seq, outstanding: Some(change) } = &self.slots[slot] else {
            return;
        };
        // Those of one name follow each other.
        let mut others = self.slots.iter().filter_map(|slot| slot.outstanding.as_ref());
        if others.any(|other| other.name == change.name && other.order < change.order) {
            return;
        }
        let (name, creates, sent_at) = (change.name.clone(), change.creates(), self.site.clock_ns);
        let reply = self.site.call(*conn, *seq, change.call.clone().into()).unwrap();
        if self.random.one_in(5) {
            self.slots[slot].conn = None; // the reply is lost
            return;
        }
        self.slots[slot].outstanding = None;
        match reply {
            Reply::Delegating { number, reply } => {
                assert_eq!(plain(*reply), Reply::Done);
                self.created += usize::from(creates);
                self.grant(number, sent_at);
            }
            Reply::Done | Reply::WithDirectory { .. } => self.created += usize::from(creates),
            Reply::Failed(Errno::EKEYREVOKED) => {
                assert!(self.may_be_revoked, "{name} was not removed or created");
                self.refused += 1;
                if creates {
                    self.known.remove(&name);
                    self.not_made.insert(name);
                } else if !self.not_made.contains(&name) {
                    self.known.insert(name);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The mount answers a recall when all changes are acknowledged.
    fn process_recall(&mut self) {
        self.recover();
        if !self.is_watching {
            let next = (EVENT_SLOT, self.client.event_seq + 1);
            let joined = self.site.attach(KIND, Some(self.client.token), next).unwrap();
            self.client.events = joined.0;
            self.client.event_seq += 1;
            self.client.await_events(&mut self.site, CacheRecall::Obeyed);
            self.is_watching = true;
        }
        let recall = self.client.recall(&mut self.site);
        self.recall = recall.or(self.recall);
        if let Some(recall) = self.recall.filter(|_| !self.is_outstanding()) {
            self.client.await_events(&mut self.site, CacheRecall::Dropped(recall));
            (self.recall, self.grant) = (None, None);
            self.returned += 1;
            self.may_be_revoked &= self.other.is_some();
        }
    }

    /// The other client attaches, or leaves.
    fn other_client(&mut self) {
        if let Some(other) = self.other.take() {
            let leave = Request::Session(SessionRequest::Detach);
            self.site.call(other.conn, other.seq + 1, leave);
            return;
        }
        match self.site.silent_client(KIND) {
            Ok(other) => {
                self.may_be_revoked |= self.is_outstanding();
                self.seen = self.names();
                self.other = Some(other);
            }
            Err(errno) => assert_eq!(errno, Errno::EAGAIN),
        }
    }

    fn end(&mut self) {
        self.is_silent = false;
        while self.is_outstanding() {
            self.process_recall();
            (0..SLOTS as usize).for_each(|slot| self.deliver(slot));
        }
        assert_eq!(self.names(), self.known);
        self.connect(0);
        let (conn, seq) = self.next_call(0);
        self.site.call(conn, seq, Request::Session(SessionRequest::Detach));
        assert_eq!(inodes(&self.site), 1 + self.known.len());
    }
}

fn run(seed: u64) -> (usize, usize, usize) {
    let mut history = History::new(seed);
    for _ in 0..STEPS {
        history.step();
    }
    history.end();
    (history.returned, history.refused, history.created)
}

#[test]
fn changes_are_made_or_refused() {
    seeds::run_all(60, |seed| {
        run(seed);
    });
    let add = |sum: (usize, usize, usize), one: (usize, usize, usize)| {
        (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
    };
    let (returned, refused, created) = (1..=60).map(run).fold((0, 0, 0), add);
    assert!(returned > 20 && refused > 20, "{returned} returned, {refused} refused");
    assert!(created > 100, "{created} created");
}
