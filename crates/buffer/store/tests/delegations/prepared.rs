//! Files that a client with a delegation has had prepared, and reports as created.

use super::{Client, SECOND_NS, Site, revoke};
use forebay_protocol::message::{
    CreateMode, Delegated, FileRequest, NameRequest, OpenMode, RECOVERY_SLOT, SessionRequest,
};
use forebay_protocol::{Attr, Credentials, Errno, HandleId, Ino, Reply, Request, Timestamp};

pub const OPEN: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: true, ..OpenMode::NONE };
const HANDLE: HandleId = HandleId(70);

pub fn prepare(number: u64, handle: HandleId) -> Delegated {
    let (parent, mode) = (Ino::ROOT, CreateMode::from(0));
    let request = NameRequest::CreateUnnamed { parent, mode, linkable: true, handle, open: OPEN };
    Delegated { number, now: Timestamp::default(), request }
}

pub fn create(number: u64, handle: HandleId, name: &str, now_ns: u64) -> Delegated {
    let (parent, name, mode) =
        (Ino::ROOT, name.as_bytes().to_vec(), CreateMode { bits: 0o666, umask: 0o022 });
    let request = NameRequest::Create { parent, name, mode, exclusive: true, handle, open: OPEN };
    Delegated { number, now: Timestamp::from_nanos(now_ns), request }
}

/// The reply without what it says of directory and delegation.
pub fn plain(reply: Reply) -> Reply {
    match reply {
        Reply::Delegating { reply, .. } | Reply::WithDirectory { reply, .. } => plain(*reply),
        reply => reply,
    }
}

fn opened(reply: Reply) -> Ino {
    match plain(reply) {
        Reply::Opened { attr, created: true, .. } => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// A site, and a mount with a delegation of this number.
fn delegated() -> (Site, Client, u64) {
    let mut site = Site::large();
    let mut client = site.mount();
    let number = client.make(&mut site, "a").unwrap();
    (site, client, number)
}

/// The inodes of the instance, with those that have no name.
pub fn inodes(site: &Site) -> usize {
    site.daemon.node().unwrap().snapshot().volumes[&super::INSTANCE].names.len()
}

fn names(site: &Site) -> Vec<&'static str> {
    super::names_of(site, ["a", "b", "c"].into_iter())
}

fn attr(site: &mut Site, client: &mut Client, name: &str) -> Attr {
    let name = name.as_bytes().to_vec();
    match plain(client.call(site, NameRequest::Lookup { parent: Ino::ROOT, name })) {
        Reply::Attr(attr) => attr,
        other => panic!("{other:?}"),
    }
}

#[test]
fn prepared_file_gets_name_owner_and_permissions_at_the_reported_time() {
    let (mut site, mut client, number) = delegated();
    let reply = client.call(&mut site, prepare(number, HANDLE));
    let ino = opened(reply);
    assert_eq!(names(&site), ["a"]);
    let reported = site.clock_ns + 10;
    site.pass(SECOND_NS);
    client.seq += 1;
    let caller = Credentials { uid: 1000, gid: 2000, groups: Some(Vec::new()), checked: true };
    let request = create(number, HANDLE, "b", reported).into();
    let mut call = super::call(client.seq, request);
    call.caller = Some(caller);
    let (conn, seq) = (client.conn, client.seq);
    site.input(forebay_store::node::Input::Call(conn, call));
    assert_eq!(plain(site.reply(conn, seq).unwrap()), Reply::Done);
    let found = attr(&mut site, &mut client, "b");
    let time = Timestamp::from_nanos(reported);
    assert_eq!((found.ino, found.nlink, found.extended), (ino, 1, false));
    assert_eq!((found.mode, found.uid, found.gid), (0o644, 1000, 2000));
    assert_eq!(found.ctime, time);
    // It has one name, and is closed as any other file.
    let again = client.call(&mut site, create(number, HANDLE, "c", reported));
    assert_eq!(again, Reply::Failed(Errno::EBADF));
    let close = FileRequest::Close { handle: HANDLE, returned: 0 };
    assert_eq!(plain(client.call(&mut site, close)), Reply::Done);
    let closed = client.call(&mut site, create(number, HANDLE, "c", reported));
    assert_eq!(closed, Reply::Failed(Errno::EBADF));
    assert_eq!(names(&site), ["a", "b"]);
    let existing = client.call(&mut site, prepare(number, HandleId(71)));
    opened(existing);
    let existing = client.call(&mut site, create(number, HandleId(71), "a", reported));
    assert_eq!(existing, Reply::Failed(Errno::EEXIST));
}

#[test]
fn prepared_file_without_a_name_ends_with_its_handle() {
    let (mut site, mut client, number) = delegated();
    let before = inodes(&site);
    let first = client.call(&mut site, prepare(number, HANDLE));
    let first = opened(first);
    assert_eq!(inodes(&site), before + 1);
    client.call(&mut site, FileRequest::Close { handle: HANDLE, returned: 0 });
    assert_eq!(inodes(&site), before);
    let second = client.call(&mut site, prepare(number, HANDLE));
    assert!(opened(second) > first, "a number is used once");
    site.call(client.conn, client.seq + 1, Request::Session(SessionRequest::Detach));
    assert_eq!(inodes(&site), before);
}

#[test]
fn prepared_file_gets_its_name_after_a_restart() {
    let (mut site, mut client, number) = delegated();
    let reply = client.call(&mut site, prepare(number, HANDLE));
    let ino = opened(reply);
    let now = site.clock_ns;
    site.restart();
    let (recovery, _) = site.attach((true, true), Some(client.token), (RECOVERY_SLOT, 1)).unwrap();
    let open = OpenMode { descriptor: false, ..OPEN };
    let reopen = FileRequest::Open { ino, handle: HANDLE, open };
    assert!(matches!(site.call(recovery, 1, reopen.into()).map(plain), Some(Reply::Opened { .. })));
    client.return_to(&mut site).unwrap();
    let reply = client.call(&mut site, create(number, HANDLE, "b", now));
    assert_eq!(plain(reply), Reply::Done);
    // The reply is lost, with the daemon.
    site.restart();
    client.seq -= 1;
    let (recovery, _) = site.attach((true, true), Some(client.token), (RECOVERY_SLOT, 2)).unwrap();
    let reopen = FileRequest::Open { ino, handle: HANDLE, open };
    site.call(recovery, 2, reopen.into());
    client.return_to(&mut site).unwrap();
    let reply = client.call(&mut site, create(number, HANDLE, "b", now));
    assert_eq!(plain(reply), Reply::Done);
    assert_eq!(attr(&mut site, &mut client, "b").ino, ino);
    assert_eq!(names(&site), ["a", "b"]);
}

#[test]
fn prepared_files_of_a_client_that_does_not_return_take_nothing() {
    let (mut site, mut client, number) = delegated();
    let before = inodes(&site);
    let reply = client.call(&mut site, prepare(number, HANDLE));
    opened(reply);
    site.restart();
    assert_eq!(inodes(&site), before + 1);
    site.pass(2 * super::SESSION_LEASE_NS);
    site.pass(SECOND_NS);
    assert_eq!(inodes(&site), before);
}

#[test]
fn creation_is_refused_when_the_delegation_was_revoked() {
    let (mut site, mut client, number) = delegated();
    let before = inodes(&site);
    let reply = client.call(&mut site, prepare(number, HANDLE));
    opened(reply);
    let mut other = revoke(&mut site);
    let now = site.clock_ns;
    let refused = client.call(&mut site, create(number, HANDLE, "b", now));
    assert_eq!(refused, Reply::Failed(Errno::EKEYREVOKED));
    let refused = client.call(&mut site, prepare(number, HandleId(71)));
    assert_eq!(refused, Reply::Failed(Errno::EKEYREVOKED));
    assert_eq!(names(&site), ["a"]);
    client.call(&mut site, FileRequest::Close { handle: HANDLE, returned: 0 });
    assert_eq!(inodes(&site), before);
    other.call(&mut site, Request::Session(SessionRequest::Detach));
}

#[test]
fn short_instance_has_no_files_prepared() {
    let mut site = Site::new();
    let mut client = site.mount();
    let number = client.make(&mut site, "a").unwrap();
    let refused = client.call(&mut site, prepare(number, HANDLE));
    assert_eq!(refused, Reply::Failed(Errno::ENOSPC));
    assert_eq!(inodes(&site), 2);
}
