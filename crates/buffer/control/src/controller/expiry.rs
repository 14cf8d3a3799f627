//! Expiry of persistent instances: a warning, the end of their use, and after a grace period their
//! removal, unless that would lose data that waits for its stage-out.

use forebay_units::human;
use serde::{Deserialize, Serialize};

use super::dispatch::Accepted;
use super::machine::Controller;
use super::objects::Session;
use super::request::{Answer, Failure, InstanceSpec, Lifetime, Setup, refuse};
use super::session_table::check_may_act;
use crate::messages::{Owner, SessionId, UnixMillis};

/// The last event in the expiry of an instance.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ExpiryStep {
    /// It does not expire soon.
    #[default]
    None,
    /// It expires soon, which was announced.
    Warned,
    /// It has expired: no job may begin to use it.
    Expired,
    /// Its grace period is over, and something prevents its removal.
    Kept,
}

/// The expiry of a persistent instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expiry {
    /// Its date.
    pub at: UnixMillis,
    /// The last event.
    pub step: ExpiryStep,
    /// Time from which the grace period counts: that at which the expiry was noticed, by the clock
    /// that is never set.
    pub noticed: Option<UnixMillis>,
}

/// An event that operators and owners should hear of, and that the audit log contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The event, in one word.
    pub action: &'static str,
    /// The object, in words.
    pub object: String,
    /// `done`, or the reason why something could not be done.
    pub outcome: String,
}

fn in_words(milliseconds: u64) -> String {
    human::seconds((milliseconds / 1000) as f64)
}

impl Controller {
    /// The expiry of an instance that is requested to live for some milliseconds.
    pub(super) fn expiry_after(
        &self,
        caller: Owner,
        lifetime_ms: Option<u64>,
    ) -> Result<Option<Expiry>, Failure> {
        let max_ms = self.settings.persistent_lifetime_ms;
        if let (Some(wanted), Some(max)) = (lifetime_ms, max_ms)
            && wanted > max
            && caller.uid != 0
        {
            refuse!(
                Invalid,
                "persistent instances of this pool live for at most {}; an operator can grant more",
                in_words(max)
            );
        }
        let at = lifetime_ms.or(max_ms).map(|lifetime| self.date().plus_ms(lifetime));
        Ok(at.map(|at| Expiry { at, step: ExpiryStep::None, noticed: None }))
    }

    /// Creates a persistent instance, or continues its creation.
    pub(super) fn create_persistent(
        &mut self,
        caller: Owner,
        name: String,
        owner: Owner,
        spec: InstanceSpec,
        public: bool,
    ) -> Result<Accepted, Failure> {
        let expiry = self.expiry_after(caller, spec.lifetime_ms)?;
        let is_new = self.state.sessions.by_token(&name).is_none();
        let (lifetime, creator) = (Lifetime::Persistent, "persistent".to_owned());
        let setup = Setup { instance: Some(spec), ..Setup::default() };
        let accepted =
            self.set_up_session(name.clone(), lifetime, owner, creator, setup, public)?;
        let id = self.state.sessions.by_token(&name).map(|(id, _)| id);
        if let (true, Some(id)) = (is_new, id)
            && let Some(session) = self.state.sessions.get_mut(id)
        {
            session.expiry = expiry;
        }
        Ok(accepted)
    }

    /// Has a persistent instance expire some milliseconds from now. Without a number it lives as long
    /// as the pool allows.
    pub(super) fn extend_persistent(
        &mut self,
        caller: Owner,
        name: &str,
        lifetime_ms: Option<u64>,
    ) -> Result<Accepted, Failure> {
        let found = self.state.sessions.by_token(name);
        let Some((id, session)) = found.filter(|(_, s)| s.lifetime == Lifetime::Persistent) else {
            refuse!(NotFound, "there is no persistent instance `{name}`");
        };
        check_may_act(caller, session.owner, &format!("`{name}`"))?;
        if session.ending {
            refuse!(Busy, "the persistent instance `{name}` is being destroyed");
        }
        let expiry = match (caller.uid, lifetime_ms) {
            (0, None) => None,
            _ => self.expiry_after(caller, lifetime_ms)?,
        };
        if let Some(session) = self.state.sessions.get_mut(id) {
            session.expiry = expiry;
        }
        Ok(Accepted::Answer(Answer::Done))
    }

    /// Refuses the use of an instance that has expired.
    pub(super) fn check_not_expired(&self, session: &Session) -> Result<(), Failure> {
        let Some(expiry) = session.expiry.filter(|expiry| expiry.at <= self.date()) else {
            return Ok(());
        };
        let name = &session.token;
        let since = in_words(self.date().ms_since(expiry.at));
        refuse!(
            Denied,
            "the persistent instance `{name}` expired {since} ago; its owner can extend it with \
             `forebay extend-persistent {name} --lifetime TIME`, or save files with `forebay stage`"
        )
    }

    /// Announces and carries out the expiry of instances.
    pub(super) fn expire_instances(&mut self) {
        let expiring = self.state.sessions.iter().filter_map(|(id, session)| {
            let expiry = session.expiry.filter(|_| !session.ending)?;
            Some((id, expiry, self.due_step(&expiry)))
        });
        let due: Vec<(SessionId, Expiry, ExpiryStep)> = expiring
            .filter(|(_, expiry, due)| *due > expiry.step || *due == ExpiryStep::Kept)
            .collect();
        for (id, expiry, due) in due {
            match due {
                ExpiryStep::None => {}
                ExpiryStep::Warned => self.announce(id, expiry, due, "expiry_warning"),
                ExpiryStep::Expired => {
                    let noticed = expiry.noticed.or(Some(self.now));
                    self.announce(id, Expiry { noticed, ..expiry }, due, "expired");
                }
                ExpiryStep::Kept => self.remove_expired(id, expiry),
            }
        }
    }

    /// The step that an expiry has reached. Each is reached after those before, also when the clock
    /// is set forward: nothing is removed before a full grace period.
    fn due_step(&self, expiry: &Expiry) -> ExpiryStep {
        let grace_ms = self.settings.persistent_grace_ms;
        if expiry.noticed.is_some_and(|noticed| self.now >= noticed.plus_ms(grace_ms)) {
            return ExpiryStep::Kept;
        }
        if self.date() >= expiry.at {
            return ExpiryStep::Expired;
        }
        if self.date().plus_ms(self.settings.persistent_warning_ms) >= expiry.at {
            return ExpiryStep::Warned;
        }
        ExpiryStep::None
    }

    fn announce(&mut self, id: SessionId, expiry: Expiry, step: ExpiryStep, action: &'static str) {
        let date = self.date();
        let Some(session) = self.state.sessions.get_mut(id) else {
            return;
        };
        session.expiry = Some(Expiry { step, ..expiry });
        let (token, uid) = (&session.token, session.owner.uid);
        let text = match step {
            ExpiryStep::Warned => format!("expires in {}", in_words(expiry.at.ms_since(date))),
            _ => format!(
                "is closed to new jobs, and is removed in {}",
                in_words(self.settings.persistent_grace_ms)
            ),
        };
        let object = format!("instance {token} of user {uid}: {text}");
        self.notices.push(Notice { action, object, outcome: "done".to_owned() });
    }

    /// Removes an instance whose grace period is over, unless it is in use or data wait for their
    /// stage-out: then the reason is announced once, and the removal is tried again.
    fn remove_expired(&mut self, id: SessionId, expiry: Expiry) {
        let Some(session) = self.state.sessions.get(id).cloned() else {
            return;
        };
        let removed = match self.has_stage_in_progress(&session) {
            true => Err("a stage is in progress".to_owned()),
            false => {
                let root = Owner { uid: 0, gid: 0 };
                let lifetime = Lifetime::Persistent;
                let removed = self.tear_down_session(root, &session.token, false, lifetime);
                removed.map(drop).map_err(|failure| failure.reason)
            }
        };
        if removed.is_err() && expiry.step == ExpiryStep::Kept {
            return;
        }
        if let Some(session) = self.state.sessions.get_mut(id) {
            session.expiry = Some(Expiry { step: ExpiryStep::Kept, ..expiry });
        }
        let object = format!("instance {} of user {}", session.token, session.owner.uid);
        let outcome = removed.err().unwrap_or_else(|| "done".to_owned());
        self.notices.push(Notice { action: "remove_expired", object, outcome });
    }

    /// The events since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}
