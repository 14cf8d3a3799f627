//! Looking up and listing entries.
//!
//! The metadata node of a directory has the names in it, and the attributes of those inodes that
//! are its own.

use super::Fs;
use crate::session::SessionReply;
use forebay_protocol::message::{DirEntry, InodeRequest, NameRequest, NameResult};
use forebay_protocol::{Attr, Errno, Ino, NodeIndex};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Maximum number of lookups of a name that other clients keep changing.
const MAX_LOOKUPS: u32 = 100;

/// Some entries of a directory.
#[derive(Clone, Debug)]
pub struct DirPage {
    /// The entries; the cookie of the last one continues after it.
    pub entries: Vec<DirEntry>,
    /// Whether these are the last entries.
    pub end: bool,
    /// Cookie of the next entry that is added to the directory. A listing that omits entries with
    /// this cookie of its first page, or later ones, ends although entries are added or renamed.
    pub next_cookie: u64,
    /// Time to live of the page.
    pub(crate) ttl: Duration,
}

impl DirPage {
    /// Whether a listing that omits entries from the cookie `limit` on ends with this page.
    pub(crate) fn is_last_before(&self, limit: u64) -> bool {
        self.end || self.entries.last().is_none_or(|last| last.cookie >= limit)
    }
}

impl Fs {
    /// The attributes of the entry `name`, or `None` if there is none, with the time to live of
    /// either.
    pub(crate) fn lookup_with_ttl(
        &self,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Option<Attr>, Duration), Errno> {
        let mut lookups = 1;
        loop {
            let request = NameRequest::Lookup { parent, name: name.to_vec() };
            let reply = self.requester.exchange(parent.metadata_node(), request.into())?;
            let ino = match reply.reply.try_into() {
                Ok(NameResult::Found(attr)) => {
                    let (attr, ttl) = self.requester.complete_with_ttl(attr, reply.ttl)?;
                    return Ok((Some(attr), ttl));
                }
                Ok(NameResult::Referral(ino)) => ino,
                Err(Errno::ENOENT) => return Ok((None, reply.ttl)),
                Err(errno) => return Err(errno),
            };
            let received = Instant::now();
            match self.requester.attr_of(ino) {
                // Removed between the two requests; the name may lead to something else by now.
                Err(Errno::ESTALE | Errno::ENOENT) if lookups < MAX_LOOKUPS => lookups += 1,
                other => {
                    let (attr, ttl) = other?;
                    let name_ttl = reply.ttl.saturating_sub(received.elapsed());
                    return Ok((Some(attr), ttl.min(name_ttl)));
                }
            }
        }
    }

    /// Entries after `cookie`, about `bytes` of them, with attributes if `attrs`. An entry that is
    /// removed meanwhile, or whose data object cannot be read, is without attributes, as are all in a
    /// directory that the caller may not search.
    pub fn read_dir(
        &self,
        ino: Ino,
        cookie: u64,
        bytes: u32,
        attrs: bool,
    ) -> Result<DirPage, Errno> {
        let request = NameRequest::ReadDir { ino, cookie, bytes, attrs };
        let SessionReply::<(Vec<DirEntry>, bool, u64, bool)> { reply, mut ttl, .. } =
            self.requester.request(ino.metadata_node(), request)?;
        let (mut entries, end, next_cookie, searchable) = reply;
        if attrs && searchable {
            ttl = self.complete_entries(&mut entries, ttl)?;
        }
        Ok(DirPage { entries, end, next_cookie, ttl })
    }

    /// Adds the attributes that the metadata node of the directory does not have, with one request
    /// to each node that has some. Returns the time to live of the entries, at most `ttl`.
    fn complete_entries(&self, entries: &mut [DirEntry], ttl: Duration) -> Result<Duration, Errno> {
        let mut until = Instant::now() + ttl;
        let mut by_node: BTreeMap<NodeIndex, Vec<Ino>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.attr.is_none()) {
            let node = entry.ino.metadata_node();
            by_node.entry(node).or_default().push(entry.ino);
        }
        let requests =
            by_node.into_iter().map(|(node, inos)| (node, InodeRequest::GetAttrs { inos }));
        let mut found = HashMap::new();
        let mut failed = None;
        let caller = self.requester.caller.as_ref();
        self.sessions().call_nodes(caller, requests, |_, reply| match reply {
            Ok(SessionReply::<Vec<Attr>> { reply: attrs, ttl, .. }) => {
                until = until.min(Instant::now() + ttl);
                found.extend(attrs.into_iter().map(|attr| (attr.ino, attr)));
            }
            Err(errno) => failed = Some(errno),
        });
        if let Some(errno) = failed {
            return Err(errno);
        }
        for entry in entries.iter_mut().filter(|entry| entry.attr.is_none()) {
            entry.attr = found.get(&entry.ino).copied();
        }
        let attrs = entries.iter_mut().filter_map(|entry| entry.attr.as_mut());
        self.requester.complete_all(attrs)?;
        Ok(until.saturating_duration_since(Instant::now()))
    }
}
