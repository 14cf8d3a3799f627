//! Changes of the name space that concern several nodes: the part of the node that was asked.
//!
//! It checks and takes what it has itself, asks the other nodes to get ready for their parts, one
//! wave after the other since what the next one is about may be known only then, and decides. What
//! is not decided does not happen: a node that is ready and hears nothing asks, and one that was
//! asked and does not know says no. A conflict with another transaction gives this one up, and
//! the request is tried again after a pause.

use super::{Context, Shard};
use crate::namespace::{Change, Lock, Namespace, lock_of};
use crate::objects::Objects;
use forebay_wire::message::{New, OnExisting};
use forebay_wire::peer::{Found, Say, Step, TxId};
use forebay_wire::{Call, Errno, Ino, InstanceId, Kind, Node, Reply, Request, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A name in a directory.
type Place = (Ino, Vec<u8>);

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Make a directory on another node.
    MakeDir {
        at: Place,
        step: Step,
        node: Node,
        made: Option<Ino>,
    },
    /// Remove a name of an inode on another node.
    Remove {
        at: Place,
        ino: Ino,
        dir: bool,
        owner_only: bool,
    },
    /// Name an inode on another node.
    Link {
        at: Place,
        ino: Ino,
        kind: Option<Kind>,
    },
    /// Change a name.
    Rename(Rename),
}

/// A change of name.
#[derive(Clone, Debug)]
pub(super) struct Rename {
    from: Place,
    to: Place,
    existing: OnExisting,
    moving: (Ino, Kind),
    owner_only: bool,
    replaced: Option<(Ino, Kind)>,
    replaced_owner_only: bool,
}

/// How far a transaction is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Others are getting ready.
    Preparing,
    /// It is being checked that no directory moves below itself: from this directory upwards,
    /// which one must not be met, and further such questions.
    Walking(Ino, Ino, Vec<(Ino, Ino)>),
    /// It happens; these nodes have not said yet that it has happened there.
    Decided(BTreeSet<Node>),
}

/// A transaction that this node decides.
#[derive(Debug)]
pub(super) struct Transaction {
    /// Who asked for it, unless that was forgotten in a crash.
    pub(super) asker: Option<(Context, Call)>,
    pub(super) tries: u32,
    pub(super) plan: Option<Plan>,
    pub(super) now: Timestamp,
    pub(super) stage: Stage,
    pub(super) wave: u8,
    /// What the present wave asks of each node that has not answered.
    pub(super) waiting: BTreeMap<Node, Vec<Step>>,
    /// All other nodes that take part.
    pub(super) nodes: BTreeSet<Node>,
    /// What changes here.
    pub(super) changes: Vec<Change>,
    pub(super) found: Vec<Found>,
    /// The reply when it has happened.
    pub(super) reply: Option<Reply>,
}

/// What comes next.
pub(super) enum Next {
    Wave(Vec<(Node, Step)>),
    Walk(Vec<(Ino, Ino)>),
    Decide,
    /// There is nothing to do.
    Nothing,
}

impl<O: Objects> Shard<O> {
    /// Does this request need a transaction? The first checks are made here, and what fails them
    /// fails.
    pub(super) fn transaction(
        &self,
        context: &Context,
        request: &Request,
    ) -> Result<Option<Plan>, Errno> {
        let instance = self.names(context.instance)?;
        if !instance.spec.place.is_spread() {
            return Ok(None);
        }
        let plan = self.plan_transaction(context, request)?;
        if plan.is_some() && !self.room {
            return Err(Errno::ENOSPC);
        }
        Ok(plan)
    }

    fn plan_transaction(
        &self,
        context: &Context,
        request: &Request,
    ) -> Result<Option<Plan>, Errno> {
        let instance = self.names(context.instance)?;
        let (names, place, who) = (&instance.names, &instance.spec.place, &context.who);
        Ok(match request {
            Request::Make {
                parent,
                name,
                new: New::Dir,
                mode,
            } => {
                let node = place.layout().shard_for_dir(*parent, name);
                if node == place.node {
                    return Ok(None);
                }
                let planned =
                    names.plan_make(who, *parent, name, New::Dir, *mode, self.now.wall)?;
                let Change::Make { inode, .. } = planned else {
                    return Err(Errno::EIO);
                };
                let step = Step::MakeDir {
                    parent: *parent,
                    mode: inode.mode,
                    uid: inode.uid,
                    gid: inode.gid,
                };
                Some(Plan::MakeDir {
                    at: (*parent, name.clone()),
                    step,
                    node,
                    made: None,
                })
            }
            Request::Unlink { parent, name } | Request::RmDir { parent, name } => {
                if !is_elsewhere(names, *parent, name) {
                    return Ok(None);
                }
                let (ino, kind, owner_only) = names.may_leave(who, *parent, name)?;
                let dir = matches!(request, Request::RmDir { .. });
                match (dir, kind == Kind::Dir) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ => {}
                }
                Some(Plan::Remove {
                    at: (*parent, name.clone()),
                    ino,
                    dir,
                    owner_only,
                })
            }
            Request::Link { ino, parent, name } if !names.owns(*ino) => {
                names.may_name(who, *parent, name)?;
                Some(Plan::Link {
                    at: (*parent, name.clone()),
                    ino: *ino,
                    kind: None,
                })
            }
            Request::Rename {
                parent,
                name,
                to,
                to_name,
                existing,
            } => {
                let (from, to) = ((*parent, name.as_slice()), (*to, to_name.as_slice()));
                if is_local_rename(names, from, to, *existing) {
                    return Ok(None);
                }
                names.check_rename(from.1, to.1)?;
                let (ino, kind, owner_only) = names.may_leave(who, from.0, from.1)?;
                Some(Plan::Rename(Rename {
                    from: (from.0, name.clone()),
                    to: (to.0, to_name.clone()),
                    existing: *existing,
                    moving: (ino, kind),
                    owner_only,
                    replaced: None,
                    replaced_owner_only: false,
                }))
            }
            _ => None,
        })
    }

    /// Take what is needed here and begin.
    pub(super) fn begin_transaction(&mut self, context: &Context, call: Call, plan: Plan) {
        let tx = TxId(self.secret() as u64 | 1 << 63);
        let at = match &plan {
            Plan::MakeDir { at, .. } | Plan::Remove { at, .. } | Plan::Link { at, .. } => at,
            Plan::Rename(rename) => &rename.from,
        };
        let lock = Lock::Name(at.0, at.1.clone());
        self.locks(context.instance).take(lock, tx);
        let transaction = Transaction {
            asker: Some((context.clone(), call)),
            tries: self.tries,
            plan: Some(plan),
            now: self.now.wall,
            stage: Stage::Preparing,
            wave: 0,
            waiting: BTreeMap::new(),
            nodes: BTreeSet::new(),
            changes: Vec::new(),
            found: Vec::new(),
            reply: None,
        };
        let transactions = &mut self.runtime(context.instance).spread.transactions;
        transactions.insert(tx, transaction);
        self.advance(context.instance, tx);
    }

    fn live(&mut self, instance: InstanceId, tx: TxId) -> Option<&mut Transaction> {
        let spread = &mut self.runtime(instance).spread;
        spread.transactions.get_mut(&tx)
    }

    /// A wave or a walk has ended: go on.
    pub(super) fn advance(&mut self, instance: InstanceId, tx: TxId) {
        loop {
            let Some(live) = self.live(instance, tx) else {
                return;
            };
            let found = std::mem::take(&mut live.found);
            let (wave, plan) = (live.wave, live.plan.as_mut());
            let next = match plan {
                Some(plan) => plan.next(wave, &found),
                None => return,
            };
            live.wave += 1;
            live.stage = Stage::Preparing;
            match next {
                Err(errno) => return self.fail(instance, tx, errno),
                Ok(Next::Nothing) => return self.nothing_to_do(instance, tx),
                Ok(Next::Decide) => return self.decide(instance, tx),
                Ok(Next::Walk(mut walks)) => {
                    if let Some((at, forbidden)) = walks.pop() {
                        live.stage = Stage::Walking(at, forbidden, walks);
                        return self.walk(instance, tx);
                    }
                }
                Ok(Next::Wave(steps)) => match self.send_wave(instance, tx, steps) {
                    Err(errno) => return self.fail(instance, tx, errno),
                    Ok(true) => {}
                    Ok(false) => return,
                },
            }
        }
    }

    /// Ask nodes for their parts. `true`: it is all here and done.
    fn send_wave(
        &mut self,
        instance: InstanceId,
        tx: TxId,
        steps: Vec<(Node, Step)>,
    ) -> Result<bool, Errno> {
        let own = self.names(instance)?.spec.place.node;
        let mut waiting: BTreeMap<Node, Vec<Step>> = BTreeMap::new();
        for (node, step) in steps {
            if node == own {
                self.take_step(instance, tx, &step)?;
            } else {
                waiting.entry(node).or_default().push(step);
            }
        }
        let nodes: Vec<_> = waiting.keys().copied().collect();
        let Some(live) = self.live(instance, tx) else {
            return Err(Errno::ESTALE);
        };
        live.waiting = waiting;
        live.nodes.extend(&nodes);
        for node in &nodes {
            self.send_prepare(instance, tx, *node);
        }
        Ok(nodes.is_empty())
    }

    /// Do a step on the coordinator itself.
    fn take_step(&mut self, instance: InstanceId, tx: TxId, step: &Step) -> Result<(), Errno> {
        let Some(live) = self.live(instance, tx) else {
            return Err(Errno::ESTALE);
        };
        let now = live.now;
        let Some((context, _)) = &live.asker else {
            return Err(Errno::ESTALE);
        };
        let who = context.who.clone();
        self.check_conflict(instance, tx, step)?;
        let ready = self.names(instance)?.names.ready(&who, step, now)?;
        if let Some(lock) = lock_of(step) {
            self.locks(instance).take(lock, tx);
        }
        if let Some(live) = self.live(instance, tx) {
            live.changes.extend(ready.changes);
            live.found.push(ready.found);
        }
        Ok(())
    }

    fn send_prepare(&mut self, instance: InstanceId, tx: TxId, node: Node) {
        let Some(live) = self.live(instance, tx) else {
            return;
        };
        let (Some(steps), Some((context, _))) = (live.waiting.get(&node), &live.asker) else {
            return;
        };
        let say = Say::Prepare {
            tx,
            wave: live.wave,
            who: (&context.who).into(),
            now: live.now,
            steps: steps.clone(),
        };
        self.tell(instance, node, say);
    }

    pub(super) fn remind_of_transactions(&mut self, instance: InstanceId, node: Node) {
        let live = self.runtime(instance).spread.transactions.iter();
        let mut prepare = Vec::new();
        let mut walk = Vec::new();
        let mut announce = Vec::new();
        for (tx, live) in live {
            match &live.stage {
                Stage::Preparing if live.waiting.contains_key(&node) => prepare.push(*tx),
                Stage::Walking(at, ..) if at.shard() == node => walk.push(*tx),
                Stage::Decided(_) if live.nodes.contains(&node) => announce.push(*tx),
                _ => {}
            }
        }
        for tx in prepare {
            self.send_prepare(instance, tx, node);
        }
        for tx in walk {
            self.walk(instance, tx);
        }
        for tx in announce {
            self.announce_to(instance, tx, node);
        }
    }

    pub(super) fn voted(
        &mut self,
        instance: InstanceId,
        from: Node,
        (tx, wave): (TxId, u8),
        found: Result<Vec<Found>, Errno>,
    ) {
        let Some(live) = self.live(instance, tx) else {
            return;
        };
        if !matches!(live.stage, Stage::Preparing) || live.wave != wave {
            return;
        }
        match found {
            Ok(found) => {
                if live.waiting.remove(&from).is_some() {
                    live.found.extend(found);
                    if live.waiting.is_empty() {
                        self.advance(instance, tx);
                    }
                }
            }
            Err(errno) => self.fail(instance, tx, errno),
        }
    }

    /// Give a transaction up. After a conflict its request is tried again.
    pub(super) fn fail(&mut self, instance: InstanceId, tx: TxId, errno: Errno) {
        let Some(live) = self.give_up(instance, tx) else {
            return;
        };
        let Some((context, call)) = live.asker else {
            return;
        };
        if errno == Errno::EAGAIN {
            self.park_for_a_pause(context.conn, call, live.tries);
        } else {
            self.reply(context.conn, context.seq, Reply::Failed(errno));
        }
    }

    fn nothing_to_do(&mut self, instance: InstanceId, tx: TxId) {
        if let Some(live) = self.give_up(instance, tx)
            && let Some((context, _)) = live.asker
        {
            self.reply(context.conn, context.seq, Reply::Done);
        }
    }

    fn give_up(&mut self, instance: InstanceId, tx: TxId) -> Option<Transaction> {
        let live = self.runtime(instance).spread.transactions.remove(&tx)?;
        self.locks(instance).release(tx);
        self.unlocked = true;
        for node in &live.nodes {
            self.tell(instance, *node, Say::Resolve { tx, commit: false });
        }
        Some(live)
    }

    /// Go up from a directory until the root, which is fine, or until the one that must not be
    /// met, or until another node has to be asked.
    fn walk(&mut self, instance: InstanceId, tx: TxId) {
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
            self.tell(instance, dir.shard(), Say::ParentOf { tx, dir });
            return None;
        }
        if self.locks(instance).held(&Lock::Inode(dir), tx) {
            return None;
        }
        let names = &self.names(instance).ok()?.names;
        let dir = names.get(dir).and_then(|inode| inode.dir());
        Some(dir.map(|dir| dir.parent).ok_or(Errno::ENOENT))
    }

    pub(super) fn tell_parent(&mut self, instance: InstanceId, from: Node, tx: TxId, dir: Ino) {
        if !self.names(instance).is_ok_and(|i| i.names.owns(dir)) {
            return;
        }
        // While the directory itself is moving, there is no answer: it is asked again.
        if let Some(parent) = self.parent_of(instance, tx, dir) {
            self.tell(instance, from, Say::ParentIs { tx, dir, parent });
        }
    }

    pub(super) fn parent_told(
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
    pub(super) fn go_on_walking(&mut self) {
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

impl Plan {
    /// What comes after `wave` waves, the last of which found this.
    fn next(&mut self, wave: u8, found: &[Found]) -> Result<Next, Errno> {
        match self {
            Plan::MakeDir {
                step, node, made, ..
            } => match (wave, found) {
                (0, _) => Ok(Next::Wave(vec![(*node, step.clone())])),
                (_, [Found::Inode(ino, _)]) => {
                    *made = Some(*ino);
                    Ok(Next::Decide)
                }
                _ => Err(Errno::EPROTO),
            },
            Plan::Remove {
                ino,
                dir,
                owner_only,
                ..
            } => {
                let step = Step::RemoveName {
                    ino: *ino,
                    dir: *dir,
                    owner_only: *owner_only,
                };
                Ok(match wave {
                    0 => Next::Wave(vec![(ino.shard(), step)]),
                    _ => Next::Decide,
                })
            }
            Plan::Link { ino, kind, .. } => match (wave, found) {
                (0, _) => {
                    let step = Step::AddName { ino: *ino };
                    Ok(Next::Wave(vec![(ino.shard(), step)]))
                }
                (_, [Found::Inode(_, is)]) => {
                    *kind = Some(*is);
                    Ok(Next::Decide)
                }
                _ => Err(Errno::EPROTO),
            },
            Plan::Rename(rename) => rename.next(wave, found),
        }
    }

    /// What changes where the names are that the coordinator itself has, and the reply.
    pub(super) fn conclusion(&self, now: Timestamp) -> (Vec<Change>, Reply) {
        let entry = |at: &Place, put| Change::Entry {
            dir: at.0,
            name: at.1.clone(),
            put,
            now,
        };
        match self {
            Plan::MakeDir { at, made, .. } => {
                let ino = made.unwrap_or_default();
                let reply = Reply::Elsewhere {
                    ino,
                    kind: Kind::Dir,
                };
                (vec![entry(at, Some((ino, Kind::Dir)))], reply)
            }
            Plan::Remove { at, .. } => (vec![entry(at, None)], Reply::Done),
            Plan::Link { at, ino, kind } => {
                let (ino, kind) = (*ino, kind.unwrap_or(Kind::File));
                (
                    vec![entry(at, Some((ino, kind)))],
                    Reply::Elsewhere { ino, kind },
                )
            }
            Plan::Rename(rename) => {
                let back = rename
                    .replaced
                    .filter(|_| rename.existing == OnExisting::Exchange);
                (vec![entry(&rename.from, back)], Reply::Done)
            }
        }
    }
}

impl Rename {
    fn next(&mut self, wave: u8, found: &[Found]) -> Result<Next, Errno> {
        let across = self.from.0 != self.to.0;
        match wave {
            0 => {
                let may_be_dir =
                    self.moving.1 == Kind::Dir || self.existing == OnExisting::Exchange;
                let lock = (across && may_be_dir).then_some((Node(0), Step::LockRenames));
                Ok(Next::Wave(lock.into_iter().collect()))
            }
            1 => {
                let step = Step::Enter {
                    dir: self.to.0,
                    name: self.to.1.clone(),
                    ino: self.moving.0,
                    kind: self.moving.1,
                    existing: self.existing,
                };
                Ok(Next::Wave(vec![(self.to.0.shard(), step)]))
            }
            2 => {
                let [Found::Entry(replaced, owner_only)] = found else {
                    return Err(Errno::EPROTO);
                };
                (self.replaced, self.replaced_owner_only) = (*replaced, *owner_only);
                if replaced.is_some_and(|(ino, _)| ino == self.moving.0) {
                    return Ok(Next::Nothing);
                }
                Ok(Next::Walk(self.walks(across)))
            }
            3 => Ok(Next::Wave(self.moves(across))),
            _ => Ok(Next::Decide),
        }
    }

    /// Which directories must not be met on the way up from where.
    fn walks(&self, across: bool) -> Vec<(Ino, Ino)> {
        let mut walks = Vec::new();
        if across && self.moving.1 == Kind::Dir {
            walks.push((self.to.0, self.moving.0));
        }
        if let Some((ino, Kind::Dir)) = self.replaced
            && across
            && self.existing == OnExisting::Exchange
        {
            walks.push((self.from.0, ino));
        }
        walks
    }

    /// What becomes of the inodes.
    fn moves(&self, across: bool) -> Vec<(Node, Step)> {
        let step = |(ino, kind): (Ino, Kind), to: Ino, owner_only| Step::Move {
            ino,
            parent: (across && kind == Kind::Dir).then_some(to),
            owner_only,
        };
        let mut steps = vec![(
            self.moving.0.shard(),
            step(self.moving, self.to.0, self.owner_only),
        )];
        if let Some(replaced) = self.replaced {
            let owner_only = self.replaced_owner_only;
            let step = match self.existing {
                OnExisting::Exchange => step(replaced, self.from.0, owner_only),
                _ => Step::RemoveName {
                    ino: replaced.0,
                    dir: replaced.1 == Kind::Dir,
                    owner_only,
                },
            };
            steps.push((replaced.0.shard(), step));
        }
        steps
    }
}

fn entry(names: &Namespace, dir: Ino, name: &[u8]) -> Option<(Ino, Kind)> {
    let entry = names.get(dir)?.dir()?.entry(name)?;
    Some((entry.ino, entry.kind))
}

/// Does a name here lead to an inode on another node?
fn is_elsewhere(names: &Namespace, dir: Ino, name: &[u8]) -> bool {
    entry(names, dir, name).is_some_and(|(ino, _)| !names.owns(ino))
}

/// Does a change of name concern nothing but what is here? Directories that get another parent
/// never do: what they are below must be looked up.
fn is_local_rename(
    names: &Namespace,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    existing: OnExisting,
) -> bool {
    let source = entry(names, from.0, from.1);
    let target = entry(names, to.0, to.1);
    let own = |what: Option<(Ino, Kind)>| what.is_none_or(|(ino, _)| names.owns(ino));
    let dir = |what: Option<(Ino, Kind)>| what.is_some_and(|(_, kind)| kind == Kind::Dir);
    let exchange = existing == OnExisting::Exchange;
    let moves_dir = from.0 != to.0 && (dir(source) || (exchange && dir(target)));
    names.owns(to.0) && own(source) && own(target) && !moves_dir
}
