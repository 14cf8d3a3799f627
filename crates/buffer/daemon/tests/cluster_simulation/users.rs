//! Simulated users: each runs one job, or holds a persistent instance, repeats every request
//! until there is a reply, and decides how to handle refusals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_control::controller::{
    Answer, Cause, Outcome, Request, RequestEnvelope, RequestId, Setup,
};
use forebay_control::messages::{Owner, UnixMillis};
use forebay_job_script::JobScript;

use crate::oracle::{DEFERRED, Oracle, out};
use crate::pfs::Pfs;
use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Setup,
    StageIn,
    Activate,
    /// Requests a further stage-out at the end of the job.
    Defer,
    Run,
    Deactivate,
    StageOut,
    Teardown,
    Ended,
}

/// Input that is named in a list.
fn list_of_inputs(
    token: &str,
    inside: &str,
    script: &mut String,
    inputs: &mut Vec<(PathBuf, Arc<Vec<u8>>)>,
    random: &mut Random,
    pfs: &Pfs,
) {
    let mut list = String::from("# what the job reads\n\n");
    for number in 0..random.below(5) {
        let path = format!("/pfs/{token}/l{number}");
        let bytes: Vec<u8> = (0..random.below(9000)).map(|i| (i / 3) as u8).collect();
        pfs.put(Path::new(&path), Some(&bytes));
        list.push_str(&format!("{path}\n"));
        inputs.push((format!("striped/list/l{number}").into(), Arc::new(bytes)));
    }
    let path = format!("/pfs/{token}/list");
    pfs.put(Path::new(&path), Some(list.as_bytes()));
    script.push_str(&format!("#DW stage_in type=list source={path} destination={inside}/list\n"));
}

/// Input that is named by its directory.
fn directory_of_inputs(
    token: &str,
    inside: &str,
    script: &mut String,
    inputs: &mut Vec<(PathBuf, Arc<Vec<u8>>)>,
    random: &mut Random,
    pfs: &Pfs,
) {
    let from = format!("/pfs/{token}/dir");
    pfs.put(Path::new(&from), None);
    for number in 0..random.below(12) {
        let bytes: Vec<u8> = (0..random.below(5000)).map(|i| (i / 2) as u8).collect();
        pfs.put(Path::new(&format!("{from}/d{number}")), Some(&bytes));
        inputs.push((format!("striped/dir/d{number}").into(), Arc::new(bytes)));
    }
    let to = format!("{inside}/dir");
    script.push_str(&format!("#DW stage_in type=directory source={from} destination={to}\n"));
}

/// A user with a job.
#[derive(Clone, Debug)]
pub struct SimUser {
    pub token: String,
    pub owner: Owner,
    pub persistent: bool,
    setup: Setup,
    pub hosts: Vec<String>,
    /// Persistent instances it uses.
    pub uses: Vec<String>,
    /// Processes of the job that run.
    pub processes: u64,
    /// Those that run where the workload manager presumes them dead.
    pub presumed_dead: u64,
    /// Whether they were started in this run.
    pub started: bool,
    pub step: Step,
    client: u64,
    number: u64,
    request: Option<Request>,
    sent: UnixMillis,
    tries: u32,
    hurry: bool,
    /// Time at which the next step begins.
    rest: UnixMillis,
    ran: bool,
    /// Whether the additional stage-out is still to be requested.
    defers: bool,
    reruns: u32,
}

impl SimUser {
    /// The user with a number, of whom the first ones, so many, have persistent instances. `batches`: the
    /// job has many small files.
    pub fn new(
        (index, persistents): (u64, u64),
        batches: bool,
        hosts: &[String],
        random: &mut Random,
        oracle: &mut Oracle,
        pfs: &Pfs,
    ) -> SimUser {
        let persistent = index < persistents;
        let token = if persistent { format!("data_{index}") } else { format!("{}", 100 + index) };
        // One granule is 1 MiB.
        let capacity = 1 + random.below(12);
        // A read-only replica on each node.
        let copied = !persistent && random.chance(100);
        let mode = match (copied, random.chance(300)) {
            (true, _) => "ldbalance",
            (false, true) => "striped,private",
            (false, false) => "striped",
        };
        let inside = if copied { "$DW_JOB_LDBALANCE" } else { "$DW_JOB_STRIPED" };
        let mut script =
            format!("#DW jobdw capacity={capacity}MiB type=scratch access_mode={mode}\n");
        let mut outs = Vec::new();
        let mut inputs = Vec::new();
        let mut uses = Vec::new();
        if !persistent {
            pfs.put(&Path::new("/pfs").join(&token), None);
            for line in 0..u64::from(copied) + random.below(3) {
                let path = format!("/pfs/{token}/{line}");
                let length = random.below(3) * random.below(30_000);
                let first = random.next();
                let bytes: Vec<u8> = (0..length).map(|i| (first + i / 5) as u8).collect();
                pfs.put(Path::new(&path), Some(&bytes));
                inputs.push((format!("striped/in{line}").into(), Arc::new(bytes)));
                script.push_str(&format!("#DW stage_in type=file source=/pfs/{token}/{line} destination={inside}/in{line}\n"));
            }
            if random.chance(300) {
                oracle.counts.lists += 1;
                list_of_inputs(&token, inside, &mut script, &mut inputs, random, pfs);
            }
            if batches {
                directory_of_inputs(&token, inside, &mut script, &mut inputs, random, pfs);
            }
            let used = persistents > 0 && !copied && random.chance(400);
            if used {
                let name = format!("data_{}", random.below(persistents));
                script.push_str(&format!("#DW persistentdw name={name}\n"));
                uses.push(name);
                oracle.counts.persistent_uses += 1;
            }
            let lines = if copied { 0 } else { 1 + random.below(2) };
            for line in 0..lines {
                outs.push(out(line));
                script.push_str(&format!("#DW stage_out type=directory source=$DW_JOB_STRIPED/out{line} destination=/pfs/{token}/out{line}\n"));
            }
        }
        let script = JobScript::parse(&script, None).unwrap();
        let defers = !persistent && !copied && random.chance(300);
        if defers {
            outs.push(DEFERRED.into());
        }
        let job = oracle.jobs.entry(token.clone()).or_default();
        (job.outs, job.inputs) = (outs, inputs);
        oracle.counts.jobs += u64::from(!persistent);
        let uid = 1000 + u32::try_from(random.below(3)).unwrap();
        let some = 1 + random.below(hosts.len() as u64) as usize;
        SimUser {
            token,
            owner: Owner { uid, gid: 100 },
            persistent,
            setup: Setup::from_script(&script),
            hosts: hosts[..some].to_vec(),
            uses,
            processes: 0,
            presumed_dead: 0,
            started: false,
            step: Step::Setup,
            client: random.next(),
            number: 0,
            request: None,
            sent: UnixMillis(0),
            tries: 0,
            hurry: false,
            rest: UnixMillis(if persistent { 0 } else { 3000 + random.below(60_000) }),
            ran: false,
            defers,
            reruns: 0,
        }
    }

    /// The request to send now, if any.
    pub fn act(
        &mut self,
        now: UnixMillis,
        others_ended: bool,
        random: &mut Random,
        oracle: &mut Oracle,
    ) -> Option<RequestEnvelope> {
        if self.step == Step::Ended || now < self.rest {
            return None;
        }
        if self.request.is_some() {
            if now.ms_since(self.sent) < 2000 {
                return None;
            }
        } else {
            if self.step == Step::Run {
                if !self.started || self.processes > 0 {
                    return None;
                }
                // Some do not unmount first, and are refused.
                let forgets = random.chance(150);
                self.step = if forgets { Step::StageOut } else { Step::Deactivate };
            }
            if self.step == Step::Activate && self.ran && self.presumed_dead > 0 {
                return None; // The model of a file's contents has one writer.
            }
            if self.persistent && self.step == Step::StageIn {
                if !others_ended {
                    return None; // Kept until all jobs that use it have ended.
                }
                self.step = Step::Teardown;
            }
            if random.chance(300) {
                // Another process continues the job, as those of a workload manager do.
                self.client = random.next();
                self.number = 0;
            }
            self.number += 1;
            self.request = Some(self.compose());
            let job = oracle.jobs.get_mut(&self.token).unwrap();
            job.hurried |= self.hurry && self.step == Step::Teardown;
        }
        self.sent = now;
        let request = self.request.clone()?;
        Some(RequestEnvelope { id: self.id(), caller: self.owner, request })
    }

    fn id(&self) -> RequestId {
        RequestId((u128::from(self.client) << 64) | u128::from(self.number))
    }

    fn compose(&self) -> Request {
        let token = self.token.clone();
        match self.step {
            Step::Setup if self.persistent => Request::CreatePersistent {
                name: token,
                owner: self.owner,
                spec: self.setup.instance.clone().unwrap(),
                public: true,
            },
            Step::Setup => Request::Setup {
                token,
                owner: self.owner,
                creator: "test".into(),
                setup: self.setup.clone(),
            },
            Step::StageIn => Request::StageIn { token },
            Step::Activate => Request::Activate { token, hosts: self.hosts.clone(), creator: None },
            Step::Defer => {
                let script = format!(
                    "#DW jobdw capacity=1MiB type=scratch access_mode=striped\n\
                     #DW stage_out type=directory source=$DW_JOB_STRIPED/deferred \
                     destination=/pfs/{token}/deferred\n"
                );
                let what = JobScript::parse(&script, None).unwrap().stages.remove(0);
                Request::DeferStage { token, what }
            }
            Step::Run | Step::Deactivate => Request::Deactivate { token, creator: None },
            Step::StageOut => Request::StageOut { token },
            Step::Teardown if self.persistent => {
                Request::DestroyPersistent { name: token, hurry: self.hurry }
            }
            Step::Teardown | Step::Ended => {
                Request::Teardown { token, creator: None, hurry: self.hurry }
            }
        }
    }

    /// Handles a reply, which may be outdated or repeated.
    pub fn answered(
        &mut self,
        now: UnixMillis,
        id: RequestId,
        outcome: &Outcome,
        random: &mut Random,
        oracle: &mut Oracle,
        pfs: &Pfs,
    ) {
        if id != self.id() || self.request.is_none() {
            return;
        }
        self.request = None;
        self.tries += 1;
        self.rest = now.plus_ms(random.below(2000));
        let before = self.step;
        match outcome {
            Ok(answer) => self.succeeded(answer, random, oracle, pfs),
            Err(failure) => self.refused(failure.cause, &failure.reason, random, oracle),
        }
        if self.step != before {
            self.tries = 0;
        }
    }

    fn succeeded(&mut self, _: &Answer, random: &mut Random, oracle: &mut Oracle, pfs: &Pfs) {
        self.step = match self.step {
            Step::Setup => Step::StageIn,
            Step::StageIn => Step::Activate,
            Step::Activate => {
                oracle.jobs.get_mut(&self.token).unwrap().runs += 1;
                self.ran = true;
                self.started = false;
                if std::mem::take(&mut self.defers) { Step::Defer } else { Step::Run }
            }
            Step::Defer => {
                oracle.counts.deferred += 1;
                oracle.jobs.get_mut(&self.token).unwrap().deferred = true;
                Step::Run
            }
            Step::Run | Step::Deactivate => Step::StageOut,
            Step::StageOut => {
                if self.ran {
                    oracle.check_results(&self.token, pfs, "and told that it is staged out");
                }
                if self.ran && self.reruns == 0 && random.chance(150) {
                    self.reruns += 1;
                    Step::Activate // The job is requeued and runs again in the same instance.
                } else {
                    oracle.counts.jobs_staged_out += u64::from(self.ran);
                    Step::Teardown
                }
            }
            Step::Teardown | Step::Ended => Step::Ended,
        };
    }

    fn refused(&mut self, cause: Cause, reason: &str, random: &mut Random, oracle: &mut Oracle) {
        let give_up = self.tries > 4;
        match (self.step, cause) {
            (_, Cause::Invalid | Cause::Denied) => {
                panic!("{} at {:?}: {reason}", self.token, self.step)
            }
            (Step::Setup, Cause::Full) => {
                oracle.counts.refused_full += 1;
                if self.tries > 20 {
                    oracle.counts.refused_for_good += 1;
                    self.step = Step::Teardown;
                }
            }
            (Step::Setup, Cause::NotFound | Cause::Busy) if !give_up => {}
            (Step::Setup, _) => {
                oracle.counts.refused_for_good += 1;
                self.step = Step::Teardown;
            }
            (Step::StageIn, _) if give_up => self.step = Step::Teardown,
            (Step::Activate, _) if give_up => self.step = Step::Deactivate,
            // It continues without.
            (Step::Defer, _) => self.step = Step::Run,
            (Step::Deactivate, Cause::NotFound) => self.step = Step::Teardown,
            (Step::StageOut, Cause::Busy) if reason.contains("unmount it first") => {
                self.step = Step::Deactivate;
            }
            (Step::StageOut, _) if give_up => self.step = Step::Teardown,
            (Step::Teardown, Cause::NotFound) if self.persistent => self.step = Step::Ended,
            (Step::Teardown, Cause::Busy) if reason.contains("stage-out(s) are not done") => {
                oracle.counts.refused_kept += 1;
                if self.tries > 1 || random.chance(500) {
                    self.hurry = true;
                    oracle.counts.hurried += 1;
                } else {
                    self.step = Step::StageOut;
                }
            }
            _ => self.rest = self.rest.plus_ms(1000),
        }
    }
}
