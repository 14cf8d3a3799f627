//! Constraints between the directives of one script.

use std::collections::BTreeMap;

use super::directive::{AccessMode, Direction, InstanceRef, InstanceType, Stage};
use super::error::{Findings, Position};
use super::overlap;
use super::script::JobScript;

/// Validates the whole script.
pub(super) fn validate_script(script: &JobScript, findings: &mut Findings) {
    at_most_one("jobdw", script.jobs.iter().map(|job| job.line), findings);
    at_most_one("swap", script.swaps.iter().map(|swap| swap.line), findings);
    distinct("persistentdw", script.persistents.iter().map(|p| (&p.name, p.line)), findings);
    distinct("create_persistent", script.creates.iter().map(|c| (&c.name, c.line)), findings);
    distinct("destroy_persistent", script.destroys.iter().map(|d| (&d.name, d.line)), findings);
    for destroyed in &script.destroys {
        if script.persistents.iter().any(|p| p.name == destroyed.name) {
            findings.report(
                start(destroyed.line),
                format!("`{}` is destroyed by the script that uses it", destroyed.name),
                "destroy it in a script of its own, after the jobs that use it",
            );
        }
    }
    for stage in &script.stages {
        stageable(script, stage, findings);
    }
    overlap::check_destinations(&script.stages, findings);
}

fn start(line: u32) -> Position {
    Position { line, column: 1 }
}

fn at_most_one(name: &str, lines: impl Iterator<Item = u32>, findings: &mut Findings) {
    let mut first = None;
    for line in lines {
        match first {
            None => first = Some(line),
            Some(first) => findings.report(start(line), format!("a second `{name}`; the first is in line {first}"), "keep one of the two: a job has one instance (access_mode=striped,private gives it two views)"),
        }
    }
}

fn distinct<'a>(
    directive: &str,
    names: impl Iterator<Item = (&'a String, u32)>,
    findings: &mut Findings,
) {
    let mut seen: BTreeMap<&String, u32> = BTreeMap::new();
    for (name, line) in names {
        if let Some(first) = seen.insert(name, line) {
            findings.report(
                start(line),
                format!("`{directive}` names `{name}` as line {first} does"),
                "remove one of the two",
            );
        }
    }
}

/// Checks that the script has the instance of a stage, and that it can be staged.
fn stageable(script: &JobScript, stage: &Stage, findings: &mut Findings) {
    let at = start(stage.line);
    match stage.instance() {
        Some(InstanceRef::Job) => match script.jobs.first() {
            None if script.jobs_failed => {}
            None => findings.report(at, "a stage of `$DW_JOB_STRIPED` without `jobdw`", "add `#DW jobdw capacity=… type=scratch access_mode=striped`"),
            Some(job) if job.kind != InstanceType::Scratch => findings.report(at, format!("the job's instance (line {}) is a cache, which cannot be staged: it fetches and writes back automatically", job.line), "write type=scratch, or remove the stage"),
            Some(job) if job.has_access_mode(AccessMode::LoadBalanced) => findings.report(at, format!("the job's instance (line {}) is load-balanced", job.line), "write `$DW_JOB_LDBALANCE` instead of `$DW_JOB_STRIPED`"),
            Some(job) if !job.has_access_mode(AccessMode::Striped) => findings.report(at, format!("the job's instance (line {}) is private: a private name space cannot be staged", job.line), "write access_mode=striped or access_mode=striped,private"),
            Some(_) => {}
        },
        Some(InstanceRef::LoadBalanced) => match script.jobs.first() {
            None if script.jobs_failed => {}
            None => findings.report(at, "a stage of `$DW_JOB_LDBALANCE` without `jobdw`", "add `#DW jobdw capacity=… type=scratch access_mode=ldbalance`"),
            Some(job) if job.kind != InstanceType::Scratch => findings.report(at, format!("the job's instance (line {}) is a cache, which cannot be staged: it fetches automatically", job.line), "write type=scratch, or remove the stage"),
            Some(job) if !job.has_access_mode(AccessMode::LoadBalanced) => findings.report(at, format!("the job's instance (line {}) is not load-balanced", job.line), "write `$DW_JOB_STRIPED`, or access_mode=ldbalance"),
            Some(_) if stage.direction == Direction::Out => findings.report(at, "a stage_out of a load-balanced instance: it is read-only to the job, so there is nothing to stage out", "remove the line, or write access_mode=striped"),
            Some(_) => {}
        },
        Some(InstanceRef::Persistent(name)) => {
            let created = script.creates.iter().find(|c| &c.name == name);
            let used = script.persistents.iter().any(|p| &p.name == name);
            match created {
                Some(created) if !created.access.iter().any(|a| a.mode == AccessMode::Striped) => {
                    findings.report(at, format!("`{name}` (line {}) is private: a private name space cannot be staged", created.line), "create it with access_mode=striped");
                }
                _ if !used => findings.report(at, format!("a stage of the persistent instance `{name}`, which the script does not use"), format!("add `#DW persistentdw name={name}`")),
                _ => {}
            }
        }
        // A stage-out of a list on the parallel file system: the list names the instance.
        None => {
            if script.jobs.is_empty() && script.persistents.is_empty() && !script.jobs_failed {
                findings.report(at, "a stage_out in a script that uses no instance", "add `jobdw` or `persistentdw`");
            } else if script.persistents.is_empty() && script.jobs.first().is_some_and(|job| job.has_access_mode(AccessMode::LoadBalanced)) {
                findings.report(at, "a stage_out in a script whose instance is load-balanced: it is read-only to the job, so there is nothing to stage out", "remove the line, or write access_mode=striped");
            }
        }
    }
}
