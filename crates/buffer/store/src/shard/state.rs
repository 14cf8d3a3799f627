//! Everything a storage daemon must not forget, and the records that alter it.

use crate::namespace::{Change, Namespace};
use forebay_wire::message::InstanceSpec;
use forebay_wire::{Ino, InstanceId, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The durable state. Two states that were reached by the same records are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Starts of the daemon so far.
    pub epoch: u64,
    /// Instances with storage on this node.
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Attached clients.
    pub sessions: BTreeMap<SessionId, Session>,
    /// Sessions there ever were.
    pub session_count: u64,
}

/// An instance's part on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// What was asked for.
    pub spec: InstanceSpec,
    /// Its files.
    pub names: Namespace,
}

/// A client's attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Proof of membership for its connections.
    pub secret: u128,
    /// The user whose connections may join.
    pub uid: u32,
    /// What it is attached to; `None` for administration.
    pub instance: Option<InstanceId>,
    /// The last change through each slot.
    pub slots: BTreeMap<u32, (u64, Outcome)>,
}

/// What a change led to, as far as its reply must be given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It concerned this inode, whose attributes are the reply.
    Attr(Ino),
    /// A file was opened, and made unless the flag is unset.
    Opened(Ino, bool),
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What happens.
    pub event: Event,
    /// The request that asked for it, and its outcome.
    pub request: Option<(SessionId, u32, u64, Outcome)>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The daemon started.
    Start,
    /// A new instance.
    AddInstance(InstanceSpec, Timestamp),
    /// An instance goes with all it holds.
    DropInstance(InstanceId),
    /// An instance's capacity changes.
    Resize(InstanceId, u64),
    /// A client attaches.
    Begin {
        /// Its session.
        id: SessionId,
        /// Proof of membership.
        secret: u128,
        /// Whose it is.
        uid: u32,
        /// What it attaches to.
        instance: Option<InstanceId>,
    },
    /// A client is gone.
    End(SessionId),
    /// A name space changes.
    Names(InstanceId, Change),
}

impl State {
    /// Carry out a record. Fails only if it was made for another state.
    pub fn apply(&mut self, record: &Record) -> Result<(), &'static str> {
        match &record.event {
            Event::Start => self.epoch += 1,
            Event::AddInstance(spec, now) => {
                let names = Namespace::new(spec.mode, spec.uid, spec.gid, *now);
                let instance = Instance {
                    spec: spec.clone(),
                    names,
                };
                if self.instances.insert(spec.id, instance).is_some() {
                    return Err("the instance exists");
                }
            }
            Event::DropInstance(id) => {
                self.instances.remove(id).ok_or("no such instance")?;
                self.sessions
                    .retain(|_, session| session.instance != Some(*id));
            }
            Event::Resize(id, capacity) => {
                self.instances
                    .get_mut(id)
                    .ok_or("no such instance")?
                    .spec
                    .capacity = *capacity;
            }
            Event::Begin {
                id,
                secret,
                uid,
                instance,
            } => {
                let session = Session {
                    secret: *secret,
                    uid: *uid,
                    instance: *instance,
                    slots: BTreeMap::new(),
                };
                self.session_count = self.session_count.max(id.0);
                self.sessions.insert(*id, session);
            }
            Event::End(id) => {
                self.sessions.remove(id).ok_or("no such session")?;
            }
            Event::Names(id, change) => {
                self.instances
                    .get_mut(id)
                    .ok_or("no such instance")?
                    .names
                    .apply(change)?;
            }
        }
        if let Some((session, slot, seq, outcome)) = record.request
            && let Some(session) = self.sessions.get_mut(&session)
        {
            session.slots.insert(slot, (seq, outcome));
        }
        Ok(())
    }
}
