//! Replies are compared with those that a client expects, by family of requests, and what they change is
//! noted.

use crate::clients::{Client, Pending};
use crate::model::Name;
use crate::support::daemon::Sent;
use crate::world::World;
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest};
use forebay_protocol::{Errno, FileKind, Ino, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};

/// A reply to a client's own request.
pub struct Answered<'a> {
    pub pending: &'a Pending,
    pub sent: &'a Sent,
    /// The result is known: a reply that differs is wrong.
    pub is_certain: bool,
}

impl Answered<'_> {
    fn error(&self) -> Option<Errno> {
        match &self.sent.reply {
            Reply::Failed(errno) => Some(*errno),
            _ => None,
        }
    }

    #[track_caller]
    fn check(&self, is_right: bool) {
        let (request, reply) = (&self.pending.request, &self.sent.reply);
        assert!(is_right || !self.is_certain, "{request:?} was answered {reply:?}");
    }

    /// Check the reply to the creation of a name that exists already, or not.
    #[track_caller]
    fn check_creation(&self, exists: bool) {
        let error = self.error();
        self.check(exists == (error == Some(Errno::EEXIST)) && (exists || error.is_none()));
    }
}

impl Client {
    /// Compare a reply with what the client expects, and note what has changed.
    pub fn compare(&mut self, world: &mut World, answered: &Answered<'_>) {
        match &answered.pending.request {
            Request::Name(NameRequest::Mknod { .. })
            | Request::Name(NameRequest::Create { .. })
            | Request::Name(NameRequest::PutFile { .. })
            | Request::Name(NameRequest::Link { .. }) => self.compare_created(world, answered),
            Request::Name(NameRequest::Unlink { .. })
            | Request::Name(NameRequest::RmDir { .. })
            | Request::Name(NameRequest::Rename { .. }) => {
                self.compare_renamed(answered);
            }
            Request::Name(NameRequest::Lookup { .. })
            | Request::Name(NameRequest::ReadDir { .. }) => self.compare_names(answered),
            Request::Inode(InodeRequest::GetAttr { .. })
            | Request::Inode(InodeRequest::GetAttrs { .. })
            | Request::Inode(InodeRequest::SetAttr { .. })
            | Request::Inode(InodeRequest::StatObjects { .. }) => self.compare_attributes(answered),
            _ => self.compare_file(world, answered),
        }
    }

    fn compare_created(&mut self, world: &mut World, answered: &Answered<'_>) {
        let (request, reply) = (&answered.pending.request, &answered.sent.reply);
        let error = answered.error();
        match request {
            Request::Name(NameRequest::Mknod { parent, name, .. })
            | Request::Name(NameRequest::Create { parent, name, .. }) => {
                answered.check_creation(self.model.get(*parent, name).is_some());
                let (ino, kind) = match reply {
                    Reply::Attr(attr) | Reply::Opened { attr, .. } => (attr.ino, attr.kind),
                    Reply::Referral { ino, kind } => (*ino, *kind),
                    _ => return,
                };
                self.model.set(*parent, name, (ino, kind));
                if let Reply::Opened { capability, .. } = reply {
                    self.sizes.insert(ino, 0);
                    self.opened(world, ino, request, *capability);
                }
            }
            Request::Name(NameRequest::PutFile { parent, name, data, .. }) => {
                let old = self.model.get(*parent, name);
                match (old, error) {
                    (Some((_, FileKind::Dir)), _) => answered.check(error == Some(Errno::EISDIR)),
                    (Some((ino, _)), Some(Errno::EOPNOTSUPP)) => {
                        answered.check(ino.metadata_node() != parent.metadata_node());
                    }
                    _ => answered.check(error.is_none()),
                }
                if let Reply::Attr(attr) = reply {
                    self.model.set(*parent, name, (attr.ino, attr.kind));
                    self.sizes.insert(attr.ino, data.len() as u64);
                    self.whole.insert(attr.ino, data.clone());
                    if let Some((ino, _)) = old
                        && self.model.names_of(ino) == 0
                    {
                        self.sizes.remove(&ino);
                    }
                }
            }
            Request::Name(NameRequest::Link { ino, parent, name }) => {
                answered.check_creation(self.model.get(*parent, name).is_some());
                if error.is_none() {
                    self.model.set(*parent, name, (*ino, FileKind::File));
                }
            }
            other => panic!("{other:?} creates nothing"),
        }
    }

    fn compare_renamed(&mut self, answered: &Answered<'_>) {
        let error = answered.error();
        match &answered.pending.request {
            Request::Name(NameRequest::Unlink { parent, name }) => {
                match self.model.get(*parent, name) {
                    None => answered.check(error == Some(Errno::ENOENT)),
                    Some((_, FileKind::Dir)) => answered.check(error == Some(Errno::EISDIR)),
                    Some((ino, _)) => {
                        answered.check(error.is_none());
                        self.model.take(*parent, name);
                        if self.model.names_of(ino) == 0 {
                            self.sizes.remove(&ino);
                        }
                    }
                }
            }
            Request::Name(NameRequest::RmDir { parent, name }) => {
                match self.model.get(*parent, name) {
                    None => answered.check(error == Some(Errno::ENOENT)),
                    Some((ino, FileKind::Dir)) => {
                        let empty = self.model.dirs.get(&ino).is_none_or(BTreeMap::is_empty);
                        let is_right = empty || error == Some(Errno::ENOTEMPTY);
                        answered.check(empty == error.is_none() && is_right);
                        if error.is_none() {
                            self.model.take(*parent, name);
                            self.model.dirs.remove(&ino);
                        }
                    }
                    Some(_) => answered.check(error == Some(Errno::ENOTDIR)),
                }
            }
            Request::Name(NameRequest::Rename { parent, name, to, to_name, existing }) => {
                let mut after = self.model.clone();
                match after.rename((*parent, name), (*to, to_name), *existing) {
                    Ok(()) => answered.check(error.is_none()),
                    Err(errors) => {
                        answered.check(error.is_some_and(|errno| errors.contains(&errno)));
                    }
                }
                if error.is_none() {
                    self.model = after;
                    let model = &self.model;
                    self.sizes.retain(|ino, _| model.names_of(*ino) > 0);
                }
            }
            other => panic!("{other:?} renames nothing"),
        }
    }

    fn compare_names(&self, answered: &Answered<'_>) {
        match (&answered.pending.request, &answered.sent.reply) {
            (Request::Name(NameRequest::Lookup { parent, name }), reply) => {
                let found = match reply {
                    Reply::Attr(attr) => Some(attr.ino),
                    Reply::Referral { ino, .. } => Some(*ino),
                    _ => None,
                };
                let expected = self.model.get(*parent, name);
                answered.check(expected.map(|(ino, _)| ino) == found);
            }
            (
                Request::Name(NameRequest::ReadDir { ino, .. }),
                Reply::Entries { entries, end: true, .. },
            ) => {
                let found = entries.iter();
                let found: BTreeMap<Name, (Ino, FileKind)> =
                    found.map(|entry| (entry.name.clone(), (entry.ino, entry.kind))).collect();
                let expected = self.model.dirs.get(ino).cloned().unwrap_or_default();
                answered.check(expected == found);
            }
            _ => {}
        }
    }

    fn compare_attributes(&mut self, answered: &Answered<'_>) {
        match (&answered.pending.request, &answered.sent.reply) {
            (Request::Inode(InodeRequest::GetAttr { .. }), Reply::Attr(attr)) => {
                answered.check(self.is_expected(attr));
            }
            (Request::Inode(InodeRequest::GetAttrs { inos }), Reply::Attrs(attrs)) => {
                answered.check(attrs.iter().all(|attr| self.is_expected(attr)));
                // Inodes that have lost their names may have been dropped.
                let found: BTreeSet<Ino> = attrs.iter().map(|attr| attr.ino).collect();
                let named = |ino: &&Ino| self.model.names_of(**ino) > 0;
                answered.check(inos.iter().filter(named).all(|ino| found.contains(ino)));
                answered.check(found.iter().all(|ino| inos.contains(ino)));
            }
            (Request::Inode(InodeRequest::StatObjects { inos }), Reply::Objects(objects)) => {
                answered.check(objects.len() == inos.len());
            }
            (
                Request::Inode(InodeRequest::GetAttrs { .. })
                | Request::Inode(InodeRequest::StatObjects { .. }),
                _,
            ) => answered.check(false),
            (Request::Inode(InodeRequest::SetAttr { ino, set, .. }), _) => {
                self.whole.remove(ino);
                if let Some(open) = self.open.as_mut().filter(|open| open.ino == *ino) {
                    open.is_new = false;
                }
                if answered.error().is_none()
                    && let Some(size) = set.size
                {
                    self.sizes.insert(*ino, size);
                } else {
                    answered.check(self.model.names_of(*ino) == 0);
                    self.sizes.remove(ino);
                }
            }
            _ => {}
        }
    }

    fn compare_file(&mut self, world: &mut World, answered: &Answered<'_>) {
        let request = &answered.pending.request;
        match (request, &answered.sent.reply) {
            (Request::Inode(InodeRequest::GetFile { ino }), Reply::FileContents { data, .. }) => {
                answered.check(self.sizes.get(ino) == Some(&(data.len() as u64)));
                answered.check(self.whole.get(ino).is_none_or(|whole| whole == data));
            }
            (Request::File(FileRequest::Open { ino, open, .. }), reply) => {
                self.whole.remove(ino);
                if let Reply::Opened { capability, .. } = reply {
                    if open.truncate {
                        self.sizes.insert(*ino, 0);
                    }
                    self.opened(world, *ino, request, *capability);
                } else {
                    let is_stale = answered.error() == Some(Errno::ESTALE);
                    answered.check(is_stale && self.model.names_of(*ino) == 0);
                    self.sizes.remove(ino);
                }
            }
            (Request::File(FileRequest::OpenObject { handle, capability, .. }), reply) => {
                let (node, ino) = (answered.pending.node, capability.ino);
                if let (Some(open), Reply::Object(Some(info))) = (&self.open, reply)
                    && open.ino == ino
                    && open.is_new
                    && !open.pieces.contains_key(&node)
                {
                    assert_eq!(info.size, 0, "a new file has old data");
                }
                if let Some(object) = answered.sent.object {
                    self.write(world, node, ino, *handle, object);
                }
            }
            (Request::File(FileRequest::RenewCapability { handle, position }), reply) => {
                if let (Some(open), Reply::Capability(capability)) = (&mut self.open, reply)
                    && open.handle == *handle
                {
                    assert!(capability.width > *position, "the capability includes the node");
                    open.permit = *capability;
                }
            }
            (Request::File(FileRequest::Close { .. }), _) => {
                answered.check(answered.error().is_none());
                self.open = None;
            }
            _ => {}
        }
    }
}
