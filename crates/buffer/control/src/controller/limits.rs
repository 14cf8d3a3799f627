//! Limits on the text of requests: what a user can have the controller store and quote is bounded.

use std::collections::BTreeMap;

use forebay_job_script::{InstanceRef, InstanceType, Stage, StagePath};

use super::request::{Failure, InstanceSpec, Request, Setup, refuse};
use super::setup::MAX_TOKEN_LENGTH;
use crate::messages::SessionId;

/// Longest name of a host, a pool, a client or an account, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Longest path of a stage, in bytes: `PATH_MAX` of Linux.
const MAX_PATH_BYTES: usize = 4096;
/// Most compute nodes in one request.
const MAX_HOSTS: usize = 65_536;
/// Most access modes of an instance, and most persistent instances of a job.
const MAX_PARTS: usize = 1024;

/// Refuses a request with a name or path that is too long for anything that could exist. The refusal
/// does not quote it.
pub(super) fn check_text(request: &Request) -> Result<(), Failure> {
    match request {
        // Names of new sessions have rules of their own.
        Request::Setup { token: _, owner: _, creator, setup } => {
            check_length("the name of the client", creator)?;
            check_setup(setup)
        }
        Request::CreatePersistent { name: _, owner: _, spec, public: _ } => check_spec(spec),
        Request::Activate { token, hosts, creator } => {
            check_token_length(token)?;
            check_creator(creator.as_deref())?;
            if hosts.len() > MAX_HOSTS {
                refuse!(Invalid, "more than {MAX_HOSTS} compute nodes");
            }
            hosts.iter().try_for_each(|host| check_length("the name of a host", host))
        }
        Request::Deactivate { token, creator } => {
            check_token_length(token)?;
            check_creator(creator.as_deref())
        }
        // A session that cannot exist was torn down, too.
        Request::Teardown { token: _, creator, hurry: _ } => check_creator(creator.as_deref()),
        Request::StageIn { token } | Request::StageOut { token } => check_token_length(token),
        Request::DestroyPersistent { name, hurry: _ }
        | Request::ExtendPersistent { name, lifetime_ms: _ } => check_token_length(name),
        Request::BeginStage { token, what } | Request::DeferStage { token, what } => {
            check_token_length(token)?;
            check_stage(what)
        }
        Request::LimitStages { token, instance, max_concurrent: _ } => {
            check_token_length(token)?;
            check_instance(instance)
        }
        Request::ReleaseStage { .. }
        | Request::AwaitStage { .. }
        | Request::CancelStage { .. }
        | Request::AddPool { .. }
        | Request::AddNode { .. }
        | Request::DrainNode { .. }
        | Request::ForgetNode { .. }
        | Request::SetQuota { .. }
        | Request::EvictSessions { .. }
        | Request::AcceptRestored
        | Request::DiscardUnknown { .. } => Ok(()),
    }
}

/// Refuses names that are longer than that of any session.
fn check_token_length(token: &str) -> Result<(), Failure> {
    if token.len() > MAX_TOKEN_LENGTH {
        refuse!(
            NotFound,
            "there is no job or persistent instance of this name: names have at most \
             {MAX_TOKEN_LENGTH} bytes"
        );
    }
    Ok(())
}

fn check_creator(creator: Option<&str>) -> Result<(), Failure> {
    creator.map_or(Ok(()), |creator| check_length("the name of the client", creator))
}

fn check_length(what: &str, name: &str) -> Result<(), Failure> {
    if name.len() > MAX_NAME_BYTES {
        refuse!(Invalid, "{what} has more than {MAX_NAME_BYTES} bytes");
    }
    Ok(())
}

fn check_path(path: &str) -> Result<(), Failure> {
    if path.len() > MAX_PATH_BYTES {
        refuse!(Invalid, "a path has more than {MAX_PATH_BYTES} bytes");
    }
    Ok(())
}

fn check_setup(setup: &Setup) -> Result<(), Failure> {
    if let Some(spec) = &setup.instance {
        check_spec(spec)?;
    }
    if setup.persistents.len() > MAX_PARTS {
        refuse!(Invalid, "more than {MAX_PARTS} persistent instances");
    }
    setup.persistents.iter().try_for_each(|name| check_token_length(name))?;
    setup.stages.iter().try_for_each(check_stage)
}

fn check_spec(spec: &InstanceSpec) -> Result<(), Failure> {
    if spec.access.len() > MAX_PARTS {
        refuse!(Invalid, "more than {MAX_PARTS} access modes");
    }
    if let InstanceType::Cache { pfs } = &spec.kind {
        check_path(pfs)?;
    }
    spec.pool.iter().try_for_each(|pool| check_length("the name of a pool", pool))?;
    spec.account.iter().try_for_each(|name| check_length("the name of an account", name))
}

fn check_instance(instance: &InstanceRef) -> Result<(), Failure> {
    match instance {
        InstanceRef::Job | InstanceRef::LoadBalanced => Ok(()),
        InstanceRef::Persistent(name) => check_token_length(name),
    }
}

fn check_stage(stage: &Stage) -> Result<(), Failure> {
    for path in [&stage.source, &stage.destination] {
        match path {
            StagePath::Pfs(path) => check_path(path)?,
            StagePath::Buffer(inside) => {
                check_instance(&inside.instance)?;
                check_path(&inside.path)?;
            }
        }
    }
    Ok(())
}

/// Bytes of a session's set-up in the controller's memory and database, about.
pub(super) fn setup_bytes(setup: &Setup) -> u64 {
    const FIXED: usize = 512;
    const EACH_MODE: usize = 256;
    const EACH_NAME: usize = 32;
    let spec = setup.instance.as_ref().map_or(0, |spec| {
        let names = [&spec.pool, &spec.account].into_iter().flatten().map(String::len);
        let directory = match &spec.kind {
            InstanceType::Scratch => 0,
            InstanceType::Cache { pfs } => pfs.len(),
        };
        names.sum::<usize>() + directory + EACH_MODE * spec.access.len()
    });
    let names = setup.persistents.iter().map(|name| EACH_NAME + name.len());
    let stages = setup.stages.iter().map(stage_bytes);
    (FIXED + spec + names.sum::<usize>()) as u64 + stages.sum::<u64>()
}

/// Bytes of a stage's source and destination, about.
pub(super) fn stage_bytes(stage: &Stage) -> u64 {
    const FIXED: usize = 256;
    let length = |path: &StagePath| match path {
        StagePath::Pfs(path) => path.len(),
        StagePath::Buffer(inside) => {
            let name = match &inside.instance {
                InstanceRef::Job | InstanceRef::LoadBalanced => 0,
                InstanceRef::Persistent(name) => name.len(),
            };
            name + inside.path.len()
        }
    };
    (FIXED + length(&stage.source) + length(&stage.destination)) as u64
}

/// The bytes of sessions' set-ups and stages, by session and user.
#[derive(Clone, Debug, Default)]
pub(super) struct TextSizes {
    by_session: BTreeMap<SessionId, (u32, u64)>,
    by_user: BTreeMap<u32, u64>,
    total: u64,
}

impl TextSizes {
    /// A session of a user has more text.
    pub fn add(&mut self, session: SessionId, uid: u32, bytes: u64) {
        let (_, of_session) = self.by_session.entry(session).or_insert((uid, 0));
        *of_session += bytes;
        *self.by_user.entry(uid).or_default() += bytes;
        self.total += bytes;
    }

    /// A session has less text.
    pub fn subtract(&mut self, session: SessionId, bytes: u64) {
        let Some((uid, of_session)) = self.by_session.get_mut(&session) else {
            return;
        };
        let bytes = bytes.min(*of_session);
        *of_session -= bytes;
        let uid = *uid;
        self.subtract_from_user(uid, bytes);
    }

    /// A session is gone.
    pub fn remove(&mut self, session: SessionId) {
        if let Some((uid, bytes)) = self.by_session.remove(&session) {
            self.subtract_from_user(uid, bytes);
        }
    }

    fn subtract_from_user(&mut self, uid: u32, bytes: u64) {
        self.total -= bytes;
        if let Some(of_user) = self.by_user.get_mut(&uid) {
            *of_user -= bytes;
            if *of_user == 0 {
                self.by_user.remove(&uid);
            }
        }
    }

    /// Bytes of a user's sessions.
    pub fn of_user(&self, uid: u32) -> u64 {
        self.by_user.get(&uid).copied().unwrap_or(0)
    }

    /// Bytes of all sessions.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The bytes of each session.
    pub fn by_session(&self) -> impl Iterator<Item = (SessionId, u64)> {
        self.by_session.iter().map(|(id, (_, bytes))| (*id, *bytes))
    }
}
