//! Answers to questions about stages, and waiting for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_model::jobscript::Space;
use forebay_policy::layout::DEFAULT_STRIPE;
use forebay_wire::Errno;
use forebay_wire::staging::{Answer, Kind};

use super::ledger::{Entry, Part, Spot, by_stage, count};
use super::service::{Refused, Service, invalid, received};
use crate::controller::{Failure, Request, StageState};
use crate::embedded::StageReport;
use crate::protocol::StageId;

/// Not in [`Errno`]: the stage was stopped.
const ECANCELED: Errno = Errno(125);

impl Service {
    /// The stages that say something about each of these paths.
    fn about(&self, kind: Kind, paths: &[String]) -> Result<Vec<Part>, Refused> {
        let spots = self.spots(paths)?;
        let ledger = self.ledger();
        let mut parts = Vec::new();
        for (spot, path) in spots.iter().zip(paths) {
            let about = ledger.about(kind, spot);
            if about.is_empty() {
                return invalid(format!("{path}: no stage was asked for"));
            }
            parts.extend(about);
        }
        Ok(parts)
    }

    fn reports(&self, parts: &[Part]) -> Result<Vec<StageReport>, Refused> {
        let mut stages: Vec<StageId> = parts.iter().map(|part| part.stage()).collect();
        stages.sort();
        stages.dedup();
        Ok(self.asker.stages(stages)?)
    }

    pub(super) fn query(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let parts = self.about(kind, paths)?;
        let reports = self.reports(&parts)?;
        Ok(Answer::Counts(count(kind, &parts, &reports)))
    }

    pub(super) fn wait(&self, kind: Kind, paths: &[String]) -> Result<Answer, Refused> {
        let parts = self.about(kind, paths)?;
        let mut reports = self.reports(&parts)?;
        // Those that wait for the job's end would have it wait for itself.
        reports.retain(|report| report.status.state != StageState::Waiting);
        if reports.is_empty() {
            return invalid("no stage is under way; it waits for the job's end");
        }
        let asked: Result<Vec<_>, Failure> = reports
            .iter()
            .map(|report| {
                let stage = report.status.id;
                let answer = self.asker.begin(Request::AwaitStage { stage })?;
                Ok((stage, answer))
            })
            .collect();
        let mut refused = None;
        for (stage, answer) in asked? {
            if let Err(failure) = received(&answer) {
                let why = self.why(stage);
                refused = refused.or(Some(match why {
                    Some(errno) => Refused(errno, failure.reason),
                    None => failure.into(),
                }));
            }
        }
        refused.map_or(Ok(Answer::Done), Err)
    }

    /// The error number that says best why a stage failed.
    fn why(&self, stage: StageId) -> Option<Errno> {
        let reports = self.asker.stages(vec![stage]).ok()?;
        let report = reports.first()?;
        match report.status.state {
            StageState::Cancelled => Some(ECANCELED),
            _ => report.problems.first().map(|problem| Errno(problem.code)),
        }
    }

    pub(super) fn stripes(&self, path: &str) -> Result<Answer, Refused> {
        let spot = self.spot(path)?;
        let space = self.roots.get(spot.root).map(|root| &root.space);
        let status = self.asker.status()?;
        let session = status.sessions.iter().find(|s| s.token == self.token);
        let instance = status.instances.iter().find(|instance| match space {
            Some(Space::Persistent(name)) => instance.label == *name,
            _ => session.is_some_and(|session| session.id == instance.session),
        });
        let Some(instance) = instance else {
            return invalid(format!("{path}: there is no such instance any more"));
        };
        let mut nodes = instance.nodes.clone();
        nodes.sort();
        nodes.dedup();
        Ok(Answer::Stripes {
            size: DEFAULT_STRIPE.0,
            width: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            start: 0,
        })
    }

    pub(super) fn failures(&self, path: &str) -> Result<Answer, Refused> {
        let top = self.spot(path)?;
        let entries: Vec<(Spot, Entry)> = {
            let ledger = self.ledger();
            let above = ledger.above(&top).into_iter();
            let all = ledger.within(&top).chain(above);
            all.map(|(spot, entry)| (spot.clone(), entry.clone()))
                .collect()
        };
        let stages = entries.iter().map(|(_, entry)| entry.stage).collect();
        let reports = self.asker.stages(stages)?;
        let reports = by_stage(&reports);
        let mut failures = BTreeSet::new();
        for (spot, entry) in &entries {
            let report = reports.get(&entry.stage);
            let failed =
                |report: &&&StageReport| matches!(report.status.state, StageState::Failed(_));
            let Some(report) = report.filter(failed) else {
                continue;
            };
            let problems = report.problems.iter();
            let mut found: Vec<(Spot, i32)> = problems
                .map(|problem| (self.inner(spot, entry, &problem.path), problem.code))
                .collect();
            if found.is_empty() {
                found.push((spot.clone(), Errno::EIO.0));
            }
            failures.extend(found);
        }
        failures.retain(|(spot, _)| spot.is_within(&top));
        let shown = |spot: &Spot| {
            let root = self.roots.get(spot.root);
            format!("{}{}", root.map_or("", |root| &root.shown), spot.path)
        };
        let failures = failures.iter().map(|(spot, errno)| (shown(spot), *errno));
        Ok(Answer::Failures(failures.collect()))
    }

    /// The path in the instance of a file that a stage had a problem with, which the mover names by
    /// its source.
    fn inner(&self, spot: &Spot, entry: &Entry, problem: &Path) -> Spot {
        let source = if entry.out {
            let shown = match self.roots.get(spot.root).map(|root| &root.space) {
                Some(Space::Persistent(name)) => format!("$DW_PERSISTENT_STRIPED_{name}"),
                _ => "$DW_JOB_STRIPED".to_owned(),
            };
            Path::new(&shown).join(&spot.path)
        } else {
            PathBuf::from(&entry.pfs)
        };
        let below = problem.strip_prefix(&source).ok().and_then(Path::to_str);
        let path = match below {
            None | Some("") => spot.path.clone(),
            Some(below) if spot.path.is_empty() => below.to_owned(),
            Some(below) => format!("{}/{below}", spot.path),
        };
        Spot {
            root: spot.root,
            path,
        }
    }
}
