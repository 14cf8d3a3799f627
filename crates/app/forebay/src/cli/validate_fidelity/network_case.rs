//! Cases of traffic and of two jobs at the same time.

use super::super::ior::parse_tests;
use super::super::options::study_failure;
use crate::validate::fidelity::{NetworkCase, NetworkLoad, PairedJob, Set};
use forebay_console::Failure;
use forebay_machine::results::JobsRun;
use forebay_machine::study::{
    Fidelity, IoWork, JobWork, Progress, SimOptions, StorageChoice, StudyError, StudyJob,
    simulate_jobs, simulate_traffic,
};
use forebay_machine_file::machine::Machine;
use forebay_units::human::counted;
use forebay_units::{Bytes, Time};
use forebay_workload::placement::Placement;
use forebay_workload::traffic::{TrafficPattern, TrafficSpec};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum FigureKind {
    /// Of traffic alone.
    #[serde(rename = "accepted load")]
    AcceptedLoad,
    /// Of a job beside another.
    #[serde(rename = "slowdown")]
    Slowdown,
}

impl FigureKind {
    pub const ALL: [FigureKind; 2] = [FigureKind::AcceptedLoad, FigureKind::Slowdown];

    pub fn name(self) -> &'static str {
        match self {
            FigureKind::AcceptedLoad => "accepted load",
            FigureKind::Slowdown => "slowdown",
        }
    }
}

/// A figure of a case at both fidelities.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub set: Set,
    pub machine: String,
    /// Traffic with its offered load, or the job and the one beside it.
    pub case: String,
    pub figure: FigureKind,
    /// `None`: a simulation took longer than is allowed.
    pub packet: Option<f64>,
    pub flow: Option<f64>,
    pub difference_percent: Option<f64>,
}

/// The figures of a case: the accepted load, or the slowdown of each job.
pub(super) fn compare(
    case: &NetworkCase,
    seed: u64,
    case_time: Option<Duration>,
    progress: Progress<'_>,
) -> Result<Vec<Figure>, Failure> {
    let machine = Machine::load(&case.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    let values = |fidelity| {
        let options = SimOptions { seed, fidelity, ..SimOptions::default() };
        in_time(case_time, progress, |goes_on| simulate(&machine, &case.load, &options, goes_on))
    };
    let (packets, flows) = (values(Fidelity::Packet)?, values(Fidelity::Flow)?);
    let of_figure = |(number, (case_text, figure)): (usize, (String, FigureKind))| {
        let value = |all: &Option<Vec<f64>>| all.as_ref().and_then(|all| all.get(number).copied());
        let (packet, flow) = (value(&packets), value(&flows));
        let difference_percent = packet.zip(flow).map(|(p, f)| (f / p - 1.0) * 100.0);
        let (set, machine) = (case.set, case.machine.clone());
        Figure { set, machine, case: case_text, figure, packet, flow, difference_percent }
    };
    Ok(names(&case.load).into_iter().enumerate().map(of_figure).collect())
}

/// Description and kind of each figure of a case.
fn names(load: &NetworkLoad) -> Vec<(String, FigureKind)> {
    match load {
        NetworkLoad::Traffic { nodes, pattern, load, message, .. } => {
            let nodes = nodes.map_or(String::new(), |nodes| format!("{nodes} nodes, "));
            let text = format!("{nodes}{pattern} at {load}, messages of {message}");
            vec![(text, FigureKind::AcceptedLoad)]
        }
        NetworkLoad::Pair { storage_nodes, jobs } => {
            let one = |job: &PairedJob| format!("{} x {} {}", job.nodes, job.ppn, job.ior);
            let storage = counted((*storage_nodes).into(), "storage node");
            let text = |a: &PairedJob, b: &PairedJob| {
                (format!("{} beside {}, {storage}", one(a), one(b)), FigureKind::Slowdown)
            };
            vec![text(&jobs[0], &jobs[1]), text(&jobs[1], &jobs[0])]
        }
    }
}

/// A simulation; `None` if it takes longer than `case_time`.
fn in_time(
    case_time: Option<Duration>,
    progress: Progress<'_>,
    simulate: impl Fn(Progress<'_>) -> Result<Vec<f64>, Failed>,
) -> Result<Option<Vec<f64>>, Failure> {
    let began = Instant::now();
    let is_late = || case_time.is_some_and(|most| began.elapsed() > most);
    match simulate(&|time, done, events| progress(time, done, events) && !is_late()) {
        Ok(values) => Ok(Some(values)),
        Err(Failed::Study(StudyError::Interrupted)) if is_late() => Ok(None),
        Err(Failed::Study(error)) => Err(study_failure(&error)),
        Err(Failed::Case(failure)) => Err(failure),
    }
}

/// Why a case has no values.
enum Failed {
    Study(StudyError),
    Case(Failure),
}

impl From<StudyError> for Failed {
    fn from(error: StudyError) -> Failed {
        Failed::Study(error)
    }
}

fn wrong(what: &dyn std::fmt::Display) -> Failed {
    Failed::Case(Failure::Failed(format!("validation/flow.toml: {what}")))
}

fn simulate(
    machine: &Machine,
    load: &NetworkLoad,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<Vec<f64>, Failed> {
    match load {
        NetworkLoad::Traffic { nodes, pattern, load, message, messages } => {
            let pattern: TrafficPattern = pattern.parse().map_err(|e| wrong(&e))?;
            let message: Bytes = message.parse().map_err(|e| wrong(&e))?;
            let spec =
                TrafficSpec::new(pattern, message, *load, *messages).map_err(|e| wrong(&e))?;
            let options = SimOptions { traffic_nodes: *nodes, ..options.clone() };
            Ok(vec![simulate_traffic(machine, &spec, &options, progress)?.accepted_load])
        }
        NetworkLoad::Pair { storage_nodes, jobs } => {
            let [a, b] =
                [study_job(1, &jobs[0], *storage_nodes), study_job(2, &jobs[1], *storage_nodes)];
            Ok(slowdowns(&simulate_jobs(machine, &[a?, b?], options, progress)?))
        }
    }
}

fn study_job(number: u32, job: &PairedJob, storage_nodes: u32) -> Result<StudyJob, Failed> {
    let words: Vec<String> = job.ior.split_whitespace().map(String::from).collect();
    let mut tests = parse_tests(&words).map_err(Failed::Case)?.unwrap_or_default();
    let (Some(ior), true) = (tests.pop(), tests.is_empty()) else {
        return Err(wrong(&format!("`{}` is not one IOR test", job.ior)));
    };
    let work = IoWork {
        ior,
        ppn: job.ppn,
        start: Time(0),
        rate_limit: None,
        storage: StorageChoice { nodes: Some(storage_nodes), ..StorageChoice::default() },
    };
    Ok(StudyJob {
        name: number.to_string(),
        nodes: job.nodes,
        placement: Placement::Contiguous,
        groups: None,
        work: JobWork::Io(work),
    })
}

/// The slowdown of each job beside the other one.
fn slowdowns(run: &JobsRun) -> Vec<f64> {
    let both = run.together.last();
    both.map_or(Vec::new(), |both| both.jobs.iter().filter_map(|job| job.slowdown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(load: f64) -> NetworkCase {
        let load = NetworkLoad::Traffic {
            nodes: None,
            pattern: "uniform".into(),
            load,
            message: "16KiB".into(),
            messages: 20,
        };
        NetworkCase { set: Set::Build, machine: "toy".into(), load }
    }

    #[test]
    fn traffic_has_its_accepted_load_at_both_fidelities() {
        let figures = compare(&traffic(0.2), 1, None, &|_, _, _| true).unwrap();
        assert_eq!(figures.len(), 1);
        assert_eq!(figures[0].figure, FigureKind::AcceptedLoad);
        assert!((figures[0].flow.unwrap() - 0.2).abs() < 1e-6, "{figures:?}");
        assert!(figures[0].packet.is_some() && figures[0].difference_percent.is_some());
    }

    /// Both write to one storage node, so that each takes about twice its time; also on a fat tree, whose core routers
    /// are groups without nodes.
    #[test]
    fn pair_has_the_slowdown_of_each_job() {
        for machine in ["toy", "toy-tree"] {
            let job = || PairedJob { nodes: 4, ppn: 1, ior: "-w -F -t 1m -b 8m".into() };
            let load = NetworkLoad::Pair { storage_nodes: 1, jobs: [job(), job()] };
            let case = NetworkCase { set: Set::Build, machine: machine.into(), load };
            let figures = compare(&case, 1, None, &|_, _, _| true).unwrap();
            assert_eq!(figures.len(), 2);
            let is_twice = |value: Option<f64>| value.is_some_and(|v| (1.5..2.5).contains(&v));
            assert!(figures.iter().all(|f| is_twice(f.packet) && is_twice(f.flow)), "{figures:?}");
        }
    }

    #[test]
    fn simulation_beyond_its_time_has_no_value() {
        let figures = compare(&traffic(0.2), 1, Some(Duration::ZERO), &|_, _, _| true).unwrap();
        assert_eq!((figures[0].packet, figures[0].difference_percent), (None, None));
    }
}
