//! Operations on many paths, entries or small files, whose requests are sent together.
//!
//! Each operation is carried out as if it had been requested by itself, with its own result, and in no
//! particular order: they must not depend on each other. They take one request to a storage node for each
//! [`MAX_BATCH_REQUESTS`](forebay_protocol::message::MAX_BATCH_REQUESTS) of its paths, and wait for the node
//! once for several of these.

use super::Fs;
use super::inline_file::whole_file;
use crate::path::split;
use crate::requester::PathTask;
use crate::session::SessionReply;
use forebay_protocol::message::{
    BatchRequest, CreateMode, InodeRequest, MAX_INLINE_FILE_BYTES, NameRequest, NameResult,
    NewInode, PathOperation, SetAttr,
};
use forebay_protocol::{Attr, Errno, FileKind, Ino, NodeIndex};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The results of operations, in their order.
pub type Results<T> = Vec<Result<T, Errno>>;

/// A file to store whole.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Its name.
    pub name: Vec<u8>,
    /// Attributes; the others are those of a new file. No length.
    pub set: SetAttr,
    /// Contents, of at most
    /// [`MAX_INLINE_FILE_BYTES`](forebay_protocol::message::MAX_INLINE_FILE_BYTES) bytes.
    pub data: Vec<u8>,
}

impl Fs {
    /// The attributes of the inodes at `paths`, relative to the directory `dir`: [`Ino::ROOT`] for paths from
    /// the root. Symbolic links are followed, one at the end of a path only if `follow`.
    pub fn stat_many<P: AsRef<Path>>(&self, dir: Ino, paths: &[P], follow: bool) -> Results<Attr> {
        let operation = PathOperation::Inode(InodeRequest::GetAttr { ino: Ino::ROOT });
        let task = |path| Ok(PathTask { from: dir, path, follow, operation: operation.clone() });
        let tasks = paths.iter().map(|path| task(path.as_ref().as_os_str().as_bytes()));
        self.complete_all(self.carry_out(tasks.collect()))
    }

    /// The attributes of the entries `names` of a directory.
    pub fn lookup_many<N: AsRef<[u8]>>(&self, parent: Ino, names: &[N]) -> Results<Attr> {
        let lookup = |name: &N| NameRequest::Lookup { parent, name: name.as_ref().to_vec() };
        let requests: Vec<_> =
            names.iter().map(|name| in_directory(parent, lookup(name))).collect();
        let mut found = self.complete_all(self.requester.exchange_all(&requests));
        for (name, result) in names.iter().zip(&mut found) {
            // Removed between the two requests for an inode on another node than its name, which may lead to
            // something else by now.
            if matches!(result, Err(Errno::ESTALE)) {
                *result = self.lookup(parent, name.as_ref());
            }
        }
        found
    }

    /// Creates empty regular files at `paths`, relative to the directory `dir`, without opening them.
    /// `EEXIST`: there is such an entry.
    pub fn create_many<P: AsRef<Path>>(
        &self,
        dir: Ino,
        paths: &[P],
        mode: impl Into<CreateMode>,
    ) -> Results<Attr> {
        let mode = mode.into();
        let tasks = paths.iter().map(|path| {
            entry_task(dir, path.as_ref(), |parent, name| {
                let new = NewInode::Node(FileKind::File, 0);
                NameRequest::Mknod { parent, name, new, mode }
            })
        });
        self.complete_all(self.carry_out(tasks.collect()))
    }

    /// Removes the entries at `paths`, relative to the directory `dir`, that are not directories.
    pub fn unlink_many<P: AsRef<Path>>(&self, dir: Ino, paths: &[P]) -> Results<()> {
        let tasks = paths.iter().map(|path| {
            entry_task(dir, path.as_ref(), |parent, name| NameRequest::Unlink { parent, name })
        });
        let replies = self.carry_out(tasks.collect());
        self.requester.attachment.reservations.record_removal();
        let result = |reply: Result<SessionReply, Errno>| reply?.reply.try_into();
        replies.into_iter().map(result).collect()
    }

    /// Stores small files whole in a directory, as [`put_file`](Fs::put_file) does each.
    pub fn put_files(&self, parent: Ino, files: Vec<NewFile>) -> Results<Attr> {
        let put = |NewFile { name, set, data }: NewFile| {
            let (length, set) = (data.len(), Box::new(set));
            let request = NameRequest::PutFile { parent, name, set, data };
            let is_short = length <= MAX_INLINE_FILE_BYTES;
            is_short.then(|| in_directory(parent, request)).ok_or(Errno::EOPNOTSUPP)
        };
        let requests = files.into_iter().map(put).collect();
        let replies = for_valid(requests, |requests| self.requester.exchange_all(&requests));
        self.requester.attachment.reservations.record_removal();
        self.complete_all(replies)
    }

    /// Attributes and contents of small files, as [`fetch_file`](Fs::fetch_file) returns those of each. The
    /// files are given with the lengths that they probably have, by which their number in a message is chosen.
    /// Storage daemons of earlier releases answer `EOPNOTSUPP`, as for files that have to be opened.
    pub fn fetch_files(&self, files: &[(Ino, u64)]) -> Results<(Attr, Vec<u8>)> {
        let request =
            |ino: Ino| (ino.metadata_node(), BatchRequest::Inode(InodeRequest::GetFile { ino }));
        let requests: Vec<_> = files.iter().map(|(ino, _)| request(*ino)).collect();
        let length = |length: &u64| usize::try_from(*length).unwrap_or(usize::MAX);
        let contents: Vec<_> = files.iter().map(|(_, bytes)| length(bytes)).collect();
        let replies = self.requester.exchange_all_expecting(&requests, &contents);
        replies.into_iter().map(|reply| whole_file(reply?.into_result()?.reply)).collect()
    }

    /// Carries out those of `tasks` that are valid.
    fn carry_out(&self, tasks: Results<PathTask<'_>>) -> Results<SessionReply> {
        for_valid(tasks, |tasks| self.requester.exchange_all_at(&tasks))
    }

    /// The attributes in replies, with what other nodes know of them.
    fn complete_all(&self, replies: Results<SessionReply>) -> Results<Attr> {
        let mut attrs: Results<Attr> = Vec::with_capacity(replies.len());
        let mut referrals: Vec<(usize, (NodeIndex, BatchRequest))> = Vec::new();
        for (position, reply) in replies.into_iter().enumerate() {
            let found = reply.and_then(|reply| Ok(reply.into_result()?.reply));
            attrs.push(match found {
                Ok(NameResult::Found(attr)) => Ok(attr),
                Ok(NameResult::Referral(ino)) => {
                    let request = BatchRequest::Inode(InodeRequest::GetAttr { ino });
                    referrals.push((position, (ino.metadata_node(), request)));
                    Err(Errno::ESTALE)
                }
                Err(errno) => Err(errno),
            });
        }
        let (positions, requests): (Vec<usize>, Vec<_>) = referrals.into_iter().unzip();
        for (position, reply) in positions.into_iter().zip(self.requester.exchange_all(&requests)) {
            attrs[position] = reply.and_then(|reply| Ok(reply.into_result()?.reply));
        }
        let all = attrs.iter_mut().filter_map(|attr| attr.as_mut().ok());
        if self.requester.complete_all(all).is_err() {
            // A node that has parts of some files does not answer.
            for attr in &mut attrs {
                *attr = (*attr).and_then(|attr| self.requester.complete(attr));
            }
        }
        attrs
    }
}

/// An operation on the entry at `path`.
fn entry_task<'p>(
    dir: Ino,
    path: &'p Path,
    request: impl FnOnce(Ino, Vec<u8>) -> NameRequest,
) -> Result<PathTask<'p>, Errno> {
    let (parent, name) = split(path)?;
    let operation = PathOperation::Name(request(Ino::ROOT, name.to_vec()));
    Ok(PathTask { from: dir, path: parent.as_os_str().as_bytes(), follow: true, operation })
}

/// A request about an entry of a directory, for the metadata node of that.
fn in_directory(parent: Ino, request: NameRequest) -> (NodeIndex, BatchRequest) {
    (parent.metadata_node(), BatchRequest::Name(request))
}

/// The results of `act` for the valid ones of `tasks`, and the errors of the others, in the order of `tasks`.
fn for_valid<T, R>(tasks: Results<T>, act: impl FnOnce(Vec<T>) -> Results<R>) -> Results<R> {
    let mut valid = Vec::with_capacity(tasks.len());
    let mut refused = Vec::with_capacity(tasks.len());
    for task in tasks {
        refused.push(task.map(|task| valid.push(task)).err());
    }
    let mut results = act(valid).into_iter();
    let result = |refused: Option<Errno>| match refused {
        Some(errno) => Err(errno),
        None => results.next().unwrap_or(Err(Errno::EPROTO)),
    };
    refused.into_iter().map(result).collect()
}
