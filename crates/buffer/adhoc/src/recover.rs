//! Staging out what a killed or failed leader has left, or removing it.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use forebay_control::controller::Cause;
use forebay_job::{Observer, Recovery, RunError};

use crate::error::AdhocError;
use crate::fleet::{Fleet, Reach, interrupt_flag};
use crate::home::{self, Home};
use crate::launcher::Launcher;
use crate::leader::{Instance, JOB, Plan, common_address, with_supervision};
use crate::messages::{Begin, Start};

/// A request to recover.
#[derive(Clone, Debug)]
pub struct RecoverOptions {
    /// The directory of the leader that has ended.
    pub leader: PathBuf,
    /// The way to reach the hosts. Default: that of the leader.
    pub launcher: Option<Launcher>,
    /// The network interface of this host through which the hosts connect to it.
    pub interface: Option<String>,
    /// Remove the data instead.
    pub discard: bool,
}

/// Stages out the data that a leader has left on its hosts, and removes everything.
///
/// # Errors
/// The reason; the data is still there unless it was to be discarded.
pub fn recover(
    options: &RecoverOptions,
    observer: &mut dyn Observer,
) -> Result<Recovery, AdhocError> {
    let leader = std::path::absolute(&options.leader)
        .map_err(|e| AdhocError::Usage(format!("{}: {e}", options.leader.display())))?;
    if !home::is_leader_path(&leader) {
        return Err(AdhocError::Usage(format!(
            "{}: not the directory of a leader; its name is `forebay-`, eight digits and `.leader`",
            leader.display()
        )));
    }
    let home = Home::reopen(leader).map_err(AdhocError::Usage)?;
    let recovery = match Instance::read(home.path()) {
        // It was killed before there was any data.
        Ok(None) => Recovery::NothingToSave,
        Ok(Some(instance)) if options.discard => discard(&instance, options, observer)?,
        Ok(Some(instance)) => stage_out(instance, options, &home, observer)?,
        Err(reason) => return Err(AdhocError::Usage(reason)),
    };
    if !matches!(recovery, Recovery::Kept(_))
        && let Err(reason) = home.remove()
    {
        observer.warning(&format!("not everything could be removed: {reason}"));
    }
    Ok(recovery)
}

fn reach(instance: &Instance, options: &RecoverOptions) -> Result<Reach, AdhocError> {
    let launcher = match &options.launcher {
        Some(launcher) => launcher.clone(),
        None => Launcher::parse(&instance.launcher).map_err(AdhocError::Usage)?,
    };
    Ok(Reach { launcher, program: instance.program.clone() })
}

fn hosts(instance: &Instance) -> Vec<String> {
    instance.nodes.iter().map(|node| node.host.clone()).collect()
}

fn discard(
    instance: &Instance,
    options: &RecoverOptions,
    observer: &mut dyn Observer,
) -> Result<Recovery, AdhocError> {
    let start = Start {
        id: instance.id.clone(),
        key: String::new(),
        local: instance.local.clone(),
        leader: Vec::new(),
        begin: Begin::Discard,
        keep: false,
    };
    observer.phase("discard");
    let fleet = Fleet::launch(&reach(instance, options)?, &hosts(instance), start);
    for left in fleet.map_err(AdhocError::Start)?.end(true) {
        observer.warning(&format!("something may be left on {left}"));
    }
    Ok(Recovery::Discarded)
}

fn stage_out(
    mut instance: Instance,
    options: &RecoverOptions,
    home: &Home,
    observer: &mut dyn Observer,
) -> Result<Recovery, AdhocError> {
    let interrupted = interrupt_flag();
    let (reach, hosts) = (reach(&instance, options)?, hosts(&instance));
    let interface = options.interface.as_deref();
    let plan = Plan { begin: Begin::Resume, interface, interrupted: &interrupted };
    observer.phase(&format!("start {}", forebay_units::human::counted(hosts.len() as u64, "host")));
    // The hosts have their earlier addresses: these are in the records of their data.
    let assemble = |_: &mut Instance, prepared: &[_]| common_address(prepared);
    let mut running = plan.start(&mut instance, &hosts, &reach, home, observer, assemble)?;
    let pool = running.pool();
    // The user interrupts it if a host is lost again.
    let lost = AtomicBool::new(false);
    // Its leader is dead, and with it the program's connection to the pool.
    let job = forebay_job::RecoverOptions { job: Some(JOB), discard: false, force: true };
    let outcome =
        with_supervision(running.fleet(), &lost, || forebay_job::recover(&pool, job, observer));
    let outcome = match outcome {
        Ok(list) => Ok(list.into_iter().next().map_or(Recovery::NothingToSave, |one| one.recovery)),
        // It had been torn down when its leader was killed.
        Err(RunError::Step(_, failure)) if failure.cause == Cause::NotFound => {
            Ok(Recovery::NothingToSave)
        }
        Err(error) => Err(error),
    };
    let keep = !matches!(&outcome, Ok(recovery) if !matches!(recovery, Recovery::Kept(_)));
    running.end(outcome, keep, observer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn only_the_directory_of_a_leader_is_recovered() {
        struct Silent;
        impl Observer for Silent {
            fn phase(&mut self, _: &str) {}
            fn progress(&mut self, _: &[forebay_control::controller::StageStatus]) {}
            fn removal(&mut self, _: u64, _: u64) {}
            fn note(&mut self, _: &str) {}
            fn warning(&mut self, _: &str) {}
        }
        let local = tempfile::tempdir().unwrap();
        let recovered = |path: &Path| {
            let leader = path.to_owned();
            let options =
                RecoverOptions { leader, launcher: None, interface: None, discard: false };
            recover(&options, &mut Silent)
        };
        let refused = recovered(local.path()).unwrap_err();
        assert!(refused.to_string().contains("not the directory of a leader"), "{refused}");
        let path = home::leader_path(local.path(), "0123abcd");
        let refused = recovered(&path).unwrap_err();
        assert!(refused.to_string().contains("No such file"), "{refused}");
        let used = Home::create(path.clone()).unwrap();
        drop(used);
        assert_eq!(recovered(&path).unwrap(), Recovery::NothingToSave);
        assert!(!path.exists());
    }
}
