//! Attributes, also of what lies on several nodes.
//!
//! A directory's home knows the names in it, an inode's home its attributes, and while a file is
//! open for writing only its data objects know its length.

use super::{DirPage, Fs};
use forebay_protocol::message::DirEntry;
use forebay_protocol::message::{InodeRequest, NameRequest};
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Attr, Errno, Ino, NodeIndex, Reply, Request};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// How often a name is looked up again that others keep changing.
const TRIES: u32 = 100;

/// Of every node, what its data objects of some files say, in the order of the files.
type Objects = Vec<(NodeIndex, Vec<Option<ObjectInfo>>)>;

impl Fs {
    /// Make a request of `node` that is answered with attributes, and say how long they may be
    /// believed.
    pub(crate) fn attr_for(
        &self,
        node: NodeIndex,
        request: Request,
    ) -> Result<(Attr, Duration), Errno> {
        let said = self.request(node, request)?;
        match said.reply {
            Reply::Attr(attr) => self.complete_for(attr, said.ttl),
            Reply::Referral { ino, .. } => self.attr_of(ino),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Attributes of an inode, and how long they may be believed.
    pub(crate) fn attr_of(&self, ino: Ino) -> Result<(Attr, Duration), Errno> {
        let request = Request::Inode(InodeRequest::GetAttr { ino });
        let said = self.request(ino.metadata_node(), request)?;
        match said.reply {
            Reply::Attr(attr) => self.complete_for(attr, said.ttl),
            _ => Err(Errno::EPROTO),
        }
    }

    /// What `name` is, or that it is nothing, and how long either may be believed.
    pub(crate) fn lookup_for(
        &self,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Option<Attr>, Duration), Errno> {
        let mut tries = 0;
        loop {
            let request = Request::Name(NameRequest::Lookup {
                parent,
                name: name.to_vec(),
            });
            let said = self.exchange(parent.metadata_node(), request)?;
            let heard = Instant::now();
            let ino = match said.reply {
                Reply::Attr(attr) => {
                    let (attr, valid) = self.complete_for(attr, said.ttl)?;
                    return Ok((Some(attr), valid));
                }
                Reply::Failed(Errno::ENOENT) => return Ok((None, said.ttl)),
                Reply::Failed(errno) => return Err(errno),
                Reply::Referral { ino, .. } => ino,
                _ => return Err(Errno::EPROTO),
            };
            match self.attr_of(ino) {
                // It went between the two questions; the name may be something else by now.
                Err(Errno::ESTALE | Errno::ENOENT) if tries < TRIES => tries += 1,
                other => {
                    let (attr, valid) = other?;
                    let named = said.ttl.saturating_sub(heard.elapsed());
                    return Ok((Some(attr), valid.min(named)));
                }
            }
        }
    }

    /// As [`complete`](Fs::complete), for an answer that might have been believed for `valid`.
    fn complete_for(&self, attr: Attr, valid: Duration) -> Result<(Attr, Duration), Errno> {
        if attr.provisional.is_none() {
            return Ok((attr, valid));
        }
        let heard = Instant::now();
        let attr = self.complete(attr)?;
        Ok((attr, valid.saturating_sub(heard.elapsed())))
    }

    /// Have the data objects say what the inode's home does not know.
    pub(crate) fn complete(&self, mut attr: Attr) -> Result<Attr, Errno> {
        self.complete_all([&mut attr])?;
        Ok(attr)
    }

    /// The same for many inodes, with one request of each node.
    fn complete_all<'a>(&self, attrs: impl IntoIterator<Item = &'a mut Attr>) -> Result<(), Errno> {
        let unsettled = attrs.into_iter().filter(|attr| attr.provisional.is_some());
        let unsettled: Vec<&mut Attr> = unsettled.collect();
        if unsettled.is_empty() {
            return Ok(());
        }
        let inos: Vec<Ino> = unsettled.iter().map(|attr| attr.ino).collect();
        let objects = self.objects_of(&inos)?;
        for (at, attr) in unsettled.into_iter().enumerate() {
            let own = objects
                .iter()
                .map(|(node, all)| (*node, all.get(at).copied().flatten()));
            attr.merge_objects(&self.sessions.layout(), own);
        }
        Ok(())
    }

    /// What the data objects of striped files say, on all nodes; `None` where there is none.
    pub(crate) fn objects_of(&self, inos: &[Ino]) -> Result<Objects, Errno> {
        let ask = self.sessions.nodes().map(|node| {
            let inos = inos.to_vec();
            (node, Request::Inode(InodeRequest::StatObjects { inos }))
        });
        let mut objects = Vec::with_capacity(usize::from(self.sessions.layout().nodes()));
        let mut failed = None;
        self.sessions
            .call_nodes(None, ask, |node, said| match said.map(|said| said.reply) {
                Ok(Reply::Objects(all)) if all.len() == inos.len() => objects.push((node, all)),
                Ok(_) => failed = Some(Errno::EPROTO),
                Err(errno) => failed = Some(errno),
            });
        failed.map_or(Ok(objects), Err)
    }

    /// Put in the attributes that the directory's home could not give, with one request of each
    /// node that has some. Entries whose inode went meanwhile stay without. Returns for how long
    /// the entries may be believed, of `valid`.
    fn complete_page(&self, entries: &mut [DirEntry], valid: Duration) -> Result<Duration, Errno> {
        let mut until = Instant::now() + valid;
        let mut homes: BTreeMap<NodeIndex, Vec<Ino>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.attr.is_none()) {
            homes
                .entry(entry.ino.metadata_node())
                .or_default()
                .push(entry.ino);
        }
        let ask = homes
            .into_iter()
            .map(|(node, inos)| (node, Request::Inode(InodeRequest::GetAttrs { inos })));
        let mut found = HashMap::new();
        let mut failed = None;
        self.sessions
            .call_nodes(self.caller.as_ref(), ask, |_, said| {
                let valid = said.as_ref().map_or(Duration::ZERO, |said| said.ttl);
                until = until.min(Instant::now() + valid);
                match said.map(|said| said.reply) {
                    Ok(Reply::Attrs(attrs)) => found.extend(attrs.into_iter().map(|a| (a.ino, a))),
                    Ok(_) => failed = Some(Errno::EPROTO),
                    Err(errno) => failed = Some(errno),
                }
            });
        if let Some(errno) = failed {
            return Err(errno);
        }
        for entry in entries.iter_mut().filter(|entry| entry.attr.is_none()) {
            entry.attr = found.get(&entry.ino).copied();
        }
        self.complete_all(entries.iter_mut().filter_map(|entry| entry.attr.as_mut()))?;
        Ok(until.saturating_duration_since(Instant::now()))
    }

    /// Entries behind `cookie`, some `bytes` of them, with attributes if `attrs`; an entry that
    /// goes while it is read may have none all the same.
    pub fn read_dir(
        &self,
        ino: Ino,
        cookie: u64,
        bytes: u32,
        attrs: bool,
    ) -> Result<DirPage, Errno> {
        let request = Request::Name(NameRequest::ReadDir {
            ino,
            cookie,
            bytes,
            attrs,
        });
        let said = self.request(ino.metadata_node(), request)?;
        let Reply::Entries { mut entries, end } = said.reply else {
            return Err(Errno::EPROTO);
        };
        let valid = if attrs {
            self.complete_page(&mut entries, said.ttl)?
        } else {
            said.ttl
        };
        Ok(DirPage {
            entries,
            end,
            ttl: valid,
        })
    }
}
