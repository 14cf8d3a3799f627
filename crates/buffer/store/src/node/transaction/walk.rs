//! No directory may move below itself: what its new place is below is looked up, node by node,
//! while nobody else moves directories.

use super::Stage;
use crate::namespace::TxLock;
use crate::node::Shard;
use crate::objects::Objects;
use forebay_protocol::peer::{PeerPayload, TxId};
use forebay_protocol::{Errno, Ino, InstanceId, NodeIndex};

impl<O: Objects> Shard<O> {
    /// Go up from a directory until the root, which is fine, or until the one that must not be
    /// met, or until another node has to be asked.
    pub(super) fn walk(&mut self, instance: InstanceId, tx: TxId) {
        loop {
            let Some(live) = self.live(instance, tx) else {
                return;
            };
            let Stage::Walking(at, forbidden, rest) = &mut live.stage else {
                return;
            };
            let (at, forbidden) = (*at, *forbidden);
            if at == forbidden {
                return self.fail(instance, tx, Errno::EINVAL);
            }
            if at == Ino::ROOT {
                match rest.pop() {
                    Some((next, forbidden)) => {
                        live.stage = Stage::Walking(next, forbidden, std::mem::take(rest));
                        continue;
                    }
                    None => return self.advance(instance, tx),
                }
            }
            let parent = match self.parent_of(instance, tx, at) {
                None => return,
                Some(Ok(parent)) => parent,
                Some(Err(errno)) => return self.fail(instance, tx, errno),
            };
            if let Some(live) = self.live(instance, tx)
                && let Stage::Walking(at, ..) = &mut live.stage
            {
                *at = parent;
            }
        }
    }

    /// The directory that `dir` is in. `None`: another node was asked, or that is about to change.
    fn parent_of(
        &mut self,
        instance: InstanceId,
        tx: TxId,
        dir: Ino,
    ) -> Option<Result<Ino, Errno>> {
        let own = self.names(instance).is_ok_and(|i| i.names.owns(dir));
        if !own {
            self.tell(
                instance,
                dir.metadata_node(),
                PeerPayload::QueryParent { tx, dir },
            );
            return None;
        }
        if self.locks(instance).held(&TxLock::Inode(dir), tx) {
            return None;
        }
        let names = &self.names(instance).ok()?.names;
        let dir = names.get(dir).and_then(|inode| inode.dir());
        Some(dir.map(|dir| dir.parent).ok_or(Errno::ENOENT))
    }

    pub(in crate::node) fn tell_parent(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        tx: TxId,
        dir: Ino,
    ) {
        if !self.names(instance).is_ok_and(|i| i.names.owns(dir)) {
            return;
        }
        // While the directory itself is moving, there is no answer: it is asked again.
        if let Some(parent) = self.parent_of(instance, tx, dir) {
            self.tell(instance, from, PeerPayload::ParentReply { tx, dir, parent });
        }
    }

    pub(in crate::node) fn parent_told(
        &mut self,
        instance: InstanceId,
        tx: TxId,
        dir: Ino,
        parent: Result<Ino, Errno>,
    ) {
        let Some(live) = self.live(instance, tx) else {
            return;
        };
        match (&mut live.stage, parent) {
            (Stage::Walking(at, ..), Ok(parent)) if *at == dir => *at = parent,
            (Stage::Walking(at, ..), Err(errno)) if *at == dir => {
                return self.fail(instance, tx, errno);
            }
            _ => return,
        }
        self.walk(instance, tx);
    }

    /// Something was let go here that a walk may have waited for.
    pub(in crate::node) fn go_on_walking(&mut self) {
        let all = self.runtime.iter();
        let walking: Vec<_> = all
            .flat_map(|(id, runtime)| {
                let live = runtime.spread.transactions.iter();
                live.filter(|(_, live)| matches!(live.stage, Stage::Walking(..)))
                    .map(|(tx, _)| (*id, *tx))
            })
            .collect();
        for (instance, tx) in walking {
            self.walk(instance, tx);
        }
    }
}
