//! A job on one node: what the node's prolog and epilog do.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_net::auth::Authenticator;
use forebay_stage::end::FileSystem;
use forebay_stage::{ItemKind, ProgressCounters, StageItem, StageLocation};
use forebay_workflow_script::{PersistAction, StageDirection};

use crate::acl;
use crate::calls::{Plan, Reply, Report, Request};
use crate::config::{DataspaceKind, SiteConfig};
use crate::controller::call;
use crate::directories::{self, Account, node_spaces};
use crate::placement::Pull;
use crate::remote::RemoteFileSystem;
use crate::staging::{JobFiles, MAX_NAMES, copy, list_files};

/// Time in which the controller has to answer, so that it can be restarted.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two attempts to reach it.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A job on this node.
pub struct NodeJob<'a> {
    /// The site.
    pub config: &'a SiteConfig,
    /// The host's keys.
    pub auth: Authenticator,
    /// The job.
    pub job: u32,
    /// The node.
    pub node: String,
}

impl NodeJob<'_> {
    /// Makes a call, again and again while the controller cannot be reached.
    fn call(&self, request: &Request) -> Result<Reply, String> {
        let started = Instant::now();
        loop {
            match call(self.config, &self.auth, request) {
                Err(error) if error.is_unreachable && started.elapsed() < CONTROLLER_TIMEOUT => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                outcome => return outcome.map_err(|error| error.to_string()),
            }
        }
    }

    fn plan(&self, ended: bool) -> Result<Plan, String> {
        let request = Request::Plan { job: self.job, node: self.node.clone(), ended };
        match self.call(&request)? {
            Reply::Plan(plan) => Ok(*plan),
            Reply::Done | Reply::Status(_) | Reply::Failed(_) => {
                Err("unexpected reply of the controller".to_owned())
            }
        }
    }

    /// Before the job: directories, data of the jobs before it, stages in. A failure is reported to
    /// the controller, which cancels the job.
    ///
    /// # Errors
    /// The controller has not answered; the job must not run.
    pub fn prepare(&self) -> Result<(), String> {
        let plan = self.plan(false)?;
        self.perform(&plan, false, |progress, report| {
            let account = Account::find(plan.uid, plan.gid)?;
            self.make_directories(&plan, &account)?;
            report.merged.clone_from(&plan.merge);
            for (pull, address) in &plan.pulls {
                self.pull(&plan, &account, pull, address, progress)?;
            }
            self.stage(&plan, &account, StageDirection::In, progress)?;
            self.write_variables(&plan, &account)?;
            self.measure(&plan, &account, report);
            Ok(())
        })
    }

    /// After the job: stages out, persistent data.
    ///
    /// # Errors
    /// The controller has not answered. The data stay.
    pub fn finish(&self) -> Result<(), String> {
        let plan = self.plan(true)?;
        let _ = fs::remove_file(self.config.node.run_directory.join(self.job.to_string()));
        self.perform(&plan, true, |progress, report| {
            let account = Account::find(plan.uid, plan.gid)?;
            let mut outcome = Ok(());
            if plan.was_prepared {
                outcome = self.stage(&plan, &account, StageDirection::Out, progress);
                outcome = outcome.and_then(|()| self.persist(&plan, &account, report));
            }
            self.measure(&plan, &account, report);
            outcome
        })
    }

    /// Does the work, reports its progress meanwhile and its outcome afterwards.
    fn perform(
        &self,
        plan: &Plan,
        ended: bool,
        work: impl FnOnce(&ProgressCounters, &mut Report) -> Result<(), String>,
    ) -> Result<(), String> {
        let progress = ProgressCounters::new();
        let (started, done) = (Instant::now(), AtomicBool::new(false));
        let to_move = plan.pulls.iter().map(|(pull, _)| pull.bytes).sum::<u64>();
        let state = |under_way| {
            let now = progress.snapshot();
            Report {
                job: self.job,
                node: self.node.clone(),
                ended,
                under_way,
                moved: now.bytes,
                to_move: now.bytes_total.max(to_move),
                milliseconds: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
                ..Report::default()
            }
        };
        let mut report = Report::default();
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut next = Instant::now() + REPORT_INTERVAL;
                while !done.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(20));
                    if Instant::now() >= next {
                        // The final report counts.
                        let _ = call(self.config, &self.auth, &Request::Report(state(true)));
                        next = Instant::now() + REPORT_INTERVAL;
                    }
                }
            });
            let outcome = work(&progress, &mut report);
            done.store(true, Ordering::Release);
            outcome
        });
        let Report { bytes, files, merged, stored, deleted, .. } = report;
        let failure = outcome.err();
        let report = Report { failure, bytes, files, merged, stored, deleted, ..state(false) };
        self.call(&Request::Report(report)).map(drop)
    }

    fn make_directories(&self, plan: &Plan, account: &Account) -> Result<(), String> {
        for space in node_spaces(self.config) {
            directories::prepare(space, account, plan.directory)
                .map_err(|error| format!("{}: {error}", space.directory.display()))?;
            for from in &plan.merge {
                directories::merge(space, account, *from, plan.directory)?;
            }
        }
        Ok(())
    }

    /// Copies what another node holds of the workflow.
    fn pull(
        &self,
        plan: &Plan,
        account: &Account,
        pull: &Pull,
        address: &str,
        progress: &ProgressCounters,
    ) -> Result<(), String> {
        let failed = |reason: String| format!("data on node {}: {reason}", pull.from);
        let at: SocketAddr =
            address.parse().map_err(|_| failed(format!("no address: {address}")))?;
        let files = JobFiles::new(self.config, plan, account, self.job)?;
        let mut items = Vec::new();
        for space in node_spaces(self.config) {
            let root = directories::of_workflow(space, account, plan.directory);
            let local = files.local(&root);
            for directory in &pull.directories {
                let user = (plan.uid, plan.gid);
                let remote = RemoteFileSystem::open(at, &self.auth, user, &space.name, *directory);
                let Some(remote) = remote.map_err(failed)? else { continue };
                let remote: Arc<dyn FileSystem> = Arc::new(remote);
                if !pull.replaces {
                    check_distinct(&remote, &local, &root).map_err(failed)?;
                }
                items.push(StageItem {
                    kind: ItemKind::Directory,
                    source: StageLocation::in_pfs(&remote, ""),
                    target: StageLocation::in_pfs(&local, &root),
                });
            }
        }
        copy(items, progress).map_err(failed)
    }

    fn stage(
        &self,
        plan: &Plan,
        account: &Account,
        direction: StageDirection,
        progress: &ProgressCounters,
    ) -> Result<(), String> {
        let files = JobFiles::new(self.config, plan, account, self.job)?;
        let stages = plan.script.stages.iter().filter(|stage| stage.direction == direction);
        for stage in stages {
            files.run(stage, progress, |names| {
                let (job, node, line) = (self.job, self.node.clone(), stage.line);
                self.call(&Request::Claim { job, line, node, names }).map(drop)
            })?;
        }
        Ok(())
    }

    fn persist(&self, plan: &Plan, account: &Account, report: &mut Report) -> Result<(), String> {
        for directive in &plan.script.persists {
            let at_line = |reason: String| format!("line {}: {reason}", directive.line);
            let location = &directive.location;
            let space = self.config.node_space(location).map_err(at_line)?;
            let name = location.top_name().map_err(at_line)?;
            match directive.action {
                PersistAction::Store => {
                    let has = directories::store(space, account, plan.directory, name);
                    if has.map_err(at_line)? {
                        report.stored.insert(location.clone());
                    }
                }
                PersistAction::Delete => {
                    directories::delete(space, account, name)
                        .map_err(|error| at_line(error.to_string()))?;
                    report.deleted.insert(location.clone());
                }
                PersistAction::Share | PersistAction::Unshare => {
                    let allow = directive.action == PersistAction::Share;
                    let path = directories::of_persistent(space, account).join(name);
                    if let Some(principal) = directive.principal.as_ref().filter(|_| path.exists())
                    {
                        acl::set_reader_as(account, &path, principal, allow).map_err(at_line)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the job's variables, which the SPANK plugin reads.
    fn write_variables(&self, plan: &Plan, account: &Account) -> Result<(), String> {
        let mut text = format!("FOREBAY_WORKFLOW={}\n", plan.directory);
        for space in &self.config.dataspaces {
            let name = space.name.to_ascii_uppercase();
            let value = match space.kind {
                DataspaceKind::Node => {
                    let persistent = directories::of_persistent(space, account);
                    text.push_str(&format!("{name}_PERSISTENT={}\n", persistent.display()));
                    directories::of_workflow(space, account, plan.directory)
                }
                DataspaceKind::Shared => space.directory.clone(),
            };
            text.push_str(&format!("{name}={}\n", value.display()));
        }
        let directory = &self.config.node.run_directory;
        write_file(directory, &self.job.to_string(), &text)
            .map_err(|error| format!("{}: {error}", directory.display()))
    }

    fn measure(&self, plan: &Plan, account: &Account, report: &mut Report) {
        for space in node_spaces(self.config) {
            for directory in plan.merge.iter().chain([&plan.directory]) {
                let root = directories::of_workflow(space, account, *directory);
                let (bytes, files) = directories::usage(&root);
                report.bytes += bytes;
                report.files += files;
            }
        }
    }
}

fn write_file(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let new = directory.join(format!("{name}.new"));
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    fs::rename(&new, directory.join(name))
}

/// Fails if both have a file of one name.
fn check_distinct(
    remote: &Arc<dyn FileSystem>,
    local: &Arc<dyn FileSystem>,
    root: &Path,
) -> Result<(), String> {
    let list = |files: &Arc<dyn FileSystem>, path: &Path| {
        let mut names = Vec::new();
        let listed = files.open_dir(path).and_then(|dir| list_files(&*dir, "", &mut names));
        listed.map_err(|errno| io::Error::from(errno).to_string())?;
        match names.len() > MAX_NAMES {
            true => Err(format!("more than {MAX_NAMES} files, too many to compare their names")),
            false => Ok(names),
        }
    };
    let here: BTreeSet<String> = list(local, root)?.into_iter().collect();
    match list(remote, Path::new(""))?.into_iter().find(|name| here.contains(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "two jobs before this one have left a file {name}, on different nodes: rename it in \
             one of them, or let the jobs share their nodes"
        )),
    }
}
