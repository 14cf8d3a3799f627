//! Dataspaces, jobs and their processes: who may use what, and how much of it. No I/O.

use std::collections::BTreeMap;

use forebay_norns_api::Code;
use forebay_norns_api::message::{DataspaceEntry, DataspaceRequest, JobEntry, JobRequest, Process};
use serde::{Deserialize, Serialize};

use crate::caller::{Caller, ProcessId};

/// Maximum dataspaces, jobs, and processes of a job.
const MAX_DATASPACES: usize = 4096;
const MAX_JOBS: usize = 65_536;
const MAX_PROCESSES: usize = 65_536;

/// A refused call: its code and the reason.
pub(crate) type Refused = (Code, String);

/// A dataspace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dataspace {
    pub space: DataspaceRequest,
    /// Bytes that tasks have stored, and those that were there if contents are tracked.
    pub used: u64,
    /// Bytes that running tasks may still store.
    #[serde(skip)]
    reserved: u64,
}

/// The share of a job in a dataspace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Share {
    quota: u64,
    used: u64,
    #[serde(skip)]
    reserved: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Job {
    hosts: Vec<String>,
    shares: BTreeMap<String, Share>,
    processes: Vec<(Process, ProcessId)>,
}

/// Dataspaces and jobs of this node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Registry {
    spaces: BTreeMap<String, Dataspace>,
    jobs: BTreeMap<u32, Job>,
}

fn no_space(nsid: &str) -> Refused {
    (Code::NOSUCHNAMESPACE, format!("there is no dataspace `{nsid}`"))
}

fn no_job(job: u32) -> Refused {
    (Code::NOSUCHJOB, format!("there is no job {job}"))
}

impl Registry {
    /// Adds a dataspace of which `used` bytes are in use.
    pub fn add_dataspace(
        &mut self,
        nsid: &str,
        space: DataspaceRequest,
        used: u64,
    ) -> Result<(), Refused> {
        if self.spaces.contains_key(nsid) {
            return Err((Code::NAMESPACEEXISTS, format!("the dataspace `{nsid}` exists")));
        }
        if self.spaces.len() >= MAX_DATASPACES {
            return Err((Code::NOMEM, format!("there are {MAX_DATASPACES} dataspaces")));
        }
        self.spaces.insert(nsid.to_owned(), Dataspace { space, used, reserved: 0 });
        Ok(())
    }

    /// Replaces the description of a dataspace; what is in use there stays.
    pub fn update_dataspace(&mut self, nsid: &str, space: DataspaceRequest) -> Result<(), Refused> {
        self.spaces.get_mut(nsid).ok_or_else(|| no_space(nsid))?.space = space;
        Ok(())
    }

    /// Removes a dataspace.
    pub fn remove_dataspace(&mut self, nsid: &str) -> Result<(), Refused> {
        self.spaces.remove(nsid).map(|_| ()).ok_or_else(|| no_space(nsid))
    }

    /// A dataspace.
    pub fn dataspace(&self, nsid: &str) -> Option<&Dataspace> {
        self.spaces.get(nsid)
    }

    /// Adds a job.
    pub fn add_job(&mut self, job: u32, request: JobRequest) -> Result<(), Refused> {
        if self.jobs.contains_key(&job) {
            return Err((Code::JOBEXISTS, format!("job {job} exists")));
        }
        if self.jobs.len() >= MAX_JOBS {
            return Err((Code::NOMEM, format!("there are {MAX_JOBS} jobs")));
        }
        self.jobs.insert(job, Job::default());
        self.update_job(job, request)
    }

    /// Replaces hosts and limits of a job; its processes and what it uses stay.
    pub fn update_job(&mut self, job: u32, request: JobRequest) -> Result<(), Refused> {
        let job = self.jobs.get_mut(&job).ok_or_else(|| no_job(job))?;
        job.hosts = request.hosts;
        let mut known = std::mem::take(&mut job.shares);
        for (nsid, quota) in request.limits {
            let share = known.remove(&nsid).unwrap_or_default();
            job.shares.insert(nsid, Share { quota, ..share });
        }
        Ok(())
    }

    /// Removes a job with its processes.
    pub fn remove_job(&mut self, job: u32) -> Result<(), Refused> {
        self.jobs.remove(&job).map(|_| ()).ok_or_else(|| no_job(job))
    }

    /// Adds a process to a job.
    pub fn add_process(
        &mut self,
        job: u32,
        process: Process,
        id: ProcessId,
    ) -> Result<(), Refused> {
        let found = self.jobs.get_mut(&job).ok_or_else(|| no_job(job))?;
        // A process that has ended may leave its number to another one.
        found.processes.retain(|(_, known)| known.pid != id.pid || known.is(&id));
        if found.processes.iter().any(|(known, _)| *known == process) {
            let pid = process.pid;
            return Err((Code::PROCESSEXISTS, format!("process {pid} belongs to job {job}")));
        }
        if found.processes.len() >= MAX_PROCESSES {
            return Err((Code::NOMEM, format!("job {job} has {MAX_PROCESSES} processes")));
        }
        found.processes.push((process, id));
        Ok(())
    }

    /// Removes a process from a job.
    pub fn remove_process(&mut self, job: u32, process: Process) -> Result<(), Refused> {
        let found = self.jobs.get_mut(&job).ok_or_else(|| no_job(job))?;
        let before = found.processes.len();
        found.processes.retain(|(known, _)| *known != process);
        if found.processes.len() == before {
            let pid = process.pid;
            return Err((Code::NOSUCHPROCESS, format!("job {job} has no process {pid}")));
        }
        Ok(())
    }

    /// The job of a caller: that of its process, or of the nearest ancestor that has one and runs as
    /// the same user.
    pub fn job_of(&self, caller: &Caller) -> Option<u32> {
        caller.lineage.iter().find_map(|ancestor| {
            let jobs = self.jobs.iter();
            jobs.rev().find_map(|(job, found)| {
                let mut processes = found.processes.iter();
                let is_of = |(process, id): &(Process, ProcessId)| {
                    process.uid == caller.user.uid && id.is(ancestor)
                };
                processes.any(is_of).then_some(*job)
            })
        })
    }

    /// Whether a process of `job`, or a trusted one, may use a dataspace.
    pub fn authorize_job(
        &self,
        is_trusted: bool,
        job: Option<u32>,
        nsid: &str,
    ) -> Result<(), Refused> {
        let space = self.spaces.get(nsid).ok_or_else(|| no_space(nsid))?;
        if is_trusted || space.space.visible {
            return Ok(());
        }
        let Some(job) = job else {
            return Err((
                Code::NOSUCHPROCESS,
                format!("the process belongs to no job, and dataspace `{nsid}` is for jobs"),
            ));
        };
        match self.jobs.get(&job) {
            Some(found) if found.shares.contains_key(nsid) => Ok(()),
            _ => Err((Code::NOSUCHNAMESPACE, format!("job {job} may not use dataspace `{nsid}`"))),
        }
    }

    /// Whether a task that was accepted for `job` may still use a dataspace: its job must not have ended.
    pub fn authorize_task(
        &self,
        is_trusted: bool,
        job: Option<u32>,
        nsid: &str,
    ) -> Result<(), Refused> {
        match job {
            Some(job) if !is_trusted && !self.jobs.contains_key(&job) => Err(no_job(job)),
            Some(_) | None => self.authorize_job(is_trusted, job, nsid),
        }
    }

    fn share(&mut self, job: Option<u32>, nsid: &str) -> Option<&mut Share> {
        self.jobs.get_mut(&job?)?.shares.get_mut(nsid)
    }

    /// Reserves `bytes` in a dataspace for a task of `job`. Returns `false` if that exceeds the
    /// capacity or the job's quota.
    pub fn reserve(&mut self, job: Option<u32>, nsid: &str, bytes: u64) -> bool {
        let fits = |used: u64, reserved: u64, max: u64| {
            used.saturating_add(reserved).saturating_add(bytes) <= max
        };
        let Some(space) = self.spaces.get(nsid) else { return false };
        if !fits(space.used, space.reserved, space.space.capacity) {
            return false;
        }
        if let Some(share) = self.share(job, nsid) {
            if !fits(share.used, share.reserved, share.quota) {
                return false;
            }
            share.reserved += bytes;
        }
        if let Some(space) = self.spaces.get_mut(nsid) {
            space.reserved += bytes;
        }
        true
    }

    /// Returns a reservation.
    pub fn release(&mut self, job: Option<u32>, nsid: &str, bytes: u64) {
        // The job or the dataspace may be another one by now.
        if let Some(share) = self.share(job, nsid) {
            share.reserved = share.reserved.saturating_sub(bytes);
        }
        if let Some(space) = self.spaces.get_mut(nsid) {
            space.reserved = space.reserved.saturating_sub(bytes);
        }
    }

    /// Counts bytes that a task of `job` has added to a dataspace, or removed from it.
    pub fn charge(&mut self, job: Option<u32>, nsid: &str, added: u64, removed: u64) {
        let counted = |used: u64| used.saturating_add(added).saturating_sub(removed);
        if let Some(share) = self.share(job, nsid) {
            share.used = counted(share.used);
        }
        if let Some(space) = self.spaces.get_mut(nsid) {
            space.used = counted(space.used);
        }
    }

    /// All dataspaces.
    pub fn list_dataspaces(&self) -> Vec<DataspaceEntry> {
        let entry = |(nsid, found): (&String, &Dataspace)| DataspaceEntry {
            nsid: nsid.clone(),
            space: found.space.clone(),
            used: found.used,
        };
        self.spaces.iter().map(entry).collect()
    }

    /// All jobs.
    pub fn list_jobs(&self) -> Vec<JobEntry> {
        let entry = |(job, found): (&u32, &Job)| JobEntry {
            job: *job,
            hosts: found.hosts.clone(),
            limits: found
                .shares
                .iter()
                .map(|(nsid, share)| (nsid.clone(), share.quota, share.used))
                .collect(),
            processes: found.processes.iter().map(|(process, _)| *process).collect(),
        };
        self.jobs.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::User;
    use forebay_norns_api::message::Backend;

    fn space(capacity: u64, visible: bool) -> DataspaceRequest {
        let mount = b"/mnt".to_vec();
        DataspaceRequest { backend: Backend::Posix, track: false, mount, capacity, visible }
    }

    fn caller(uid: u32, pids: &[i32]) -> Caller {
        let lineage = pids.iter().map(|pid| ProcessId { pid: *pid, started: Some(7) }).collect();
        Caller { user: User { uid, gid: uid, groups: Vec::new() }, trusted: uid == 0, lineage }
    }

    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.add_dataspace("open", space(100, true), 0).unwrap();
        registry.add_dataspace("nvm", space(100, false), 0).unwrap();
        registry.add_dataspace("other", space(100, false), 0).unwrap();
        let request = JobRequest { hosts: vec!["n0".into()], limits: vec![("nvm".into(), 60)] };
        registry.add_job(42, request).unwrap();
        let process = Process { uid: 1000, gid: 1000, pid: 10 };
        registry.add_process(42, process, ProcessId { pid: 10, started: Some(7) }).unwrap();
        registry
    }

    #[test]
    fn dataspace_is_for_processes_of_a_job_that_has_a_limit_in_it() {
        let registry = registry();
        let code = |caller: &Caller, nsid: &str| {
            let job = registry.job_of(caller);
            registry.authorize_job(caller.trusted, job, nsid).map_err(|(code, _)| code)
        };
        let child = caller(1000, &[11, 10, 1]);
        assert_eq!(registry.job_of(&child), Some(42));
        assert_eq!(code(&child, "nvm"), Ok(()));
        assert_eq!(code(&child, "other"), Err(Code::NOSUCHNAMESPACE));
        assert_eq!(code(&child, "none"), Err(Code::NOSUCHNAMESPACE));
        let stranger = caller(1000, &[12, 1]);
        assert_eq!(code(&stranger, "nvm"), Err(Code::NOSUCHPROCESS));
        assert_eq!(code(&stranger, "open"), Ok(()));
        let other_user = caller(1001, &[11, 10, 1]);
        assert_eq!(code(&other_user, "nvm"), Err(Code::NOSUCHPROCESS));
        let mut later = caller(1000, &[10]);
        later.lineage[0].started = Some(8);
        assert_eq!(code(&later, "nvm"), Err(Code::NOSUCHPROCESS), "its number was used again");
        assert_eq!(code(&caller(0, &[1]), "other"), Ok(()));
    }

    #[test]
    fn reservation_is_limited_by_quota_and_capacity_until_it_is_released() {
        let mut registry = registry();
        assert!(registry.reserve(Some(42), "nvm", 40));
        assert!(!registry.reserve(Some(42), "nvm", 21), "quota 60");
        assert!(registry.reserve(None, "nvm", 60));
        assert!(!registry.reserve(None, "nvm", 1), "capacity 100");
        registry.release(Some(42), "nvm", 40);
        registry.charge(Some(42), "nvm", 40, 0);
        assert!(!registry.reserve(Some(42), "nvm", 21));
        registry.charge(Some(42), "nvm", 0, 30);
        registry.release(None, "nvm", 60);
        assert!(registry.reserve(Some(42), "nvm", 50));
        assert!(!registry.reserve(None, "none", 0));
    }

    #[test]
    fn second_registration_is_refused_and_an_update_keeps_processes() {
        let mut registry = registry();
        let request = JobRequest { hosts: Vec::new(), limits: vec![("other".into(), 1)] };
        let code = |outcome: Result<(), Refused>| outcome.map_err(|(code, _)| code);
        assert_eq!(code(registry.add_job(42, request.clone())), Err(Code::JOBEXISTS));
        assert_eq!(code(registry.update_job(43, request.clone())), Err(Code::NOSUCHJOB));
        registry.update_job(42, request).unwrap();
        let process = Process { uid: 1000, gid: 1000, pid: 10 };
        let id = ProcessId { pid: 10, started: Some(7) };
        assert_eq!(code(registry.add_process(42, process, id)), Err(Code::PROCESSEXISTS));
        assert_eq!(code(registry.remove_process(42, process)), Ok(()));
        assert_eq!(code(registry.remove_process(42, process)), Err(Code::NOSUCHPROCESS));
        let twice = registry.add_dataspace("nvm", space(1, true), 0);
        assert_eq!(code(twice), Err(Code::NAMESPACEEXISTS));
        assert_eq!(code(registry.remove_job(42)), Ok(()));
        assert_eq!(code(registry.remove_job(42)), Err(Code::NOSUCHJOB));
    }
}
