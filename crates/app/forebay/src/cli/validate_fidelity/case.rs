//! The cases of the grid and their comparison.

use super::super::ior::parse_tests;
use super::super::options::study_failure;
use crate::validate::fidelity::{GridCase, Set};
use crate::validate::packet_results::{PacketPhase, PacketResults};
use forebay_console::Failure;
use forebay_machine::results::{IorPoint, Phase};
use forebay_machine::study::{
    Fidelity, FileSystem, Progress, SimOptions, StudyError, forecast_ior, simulate_ior,
};
use forebay_machine_file::machine::Machine;
use forebay_units::human;
use forebay_workload::ior::Ior;
use serde::Serialize;
use std::time::{Duration, Instant};

/// One phase of one case at both fidelities.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub set: Set,
    pub machine: String,
    pub nodes: u32,
    pub ppn: u32,
    /// Targets of a file on the parallel file system; `None`: the burst buffer.
    pub stripe_count: Option<u32>,
    pub ior: String,
    pub access: String,
    #[serde(rename = "packet_GBps")]
    pub packet_gbps: f64,
    #[serde(rename = "flow_GBps")]
    pub flow_gbps: f64,
    pub difference_percent: f64,
    pub packet_limit: String,
    pub flow_limit: String,
    pub packet_seconds: f64,
    pub flow_seconds: f64,
}

/// A case that has no rows, because one of its simulations took longer than is allowed.
#[derive(Debug, Serialize)]
pub(super) struct TimedOut {
    pub set: Set,
    pub machine: String,
    pub nodes: u32,
    pub ppn: u32,
    pub stripe_count: Option<u32>,
    pub ior: String,
    pub fidelity: &'static str,
}

/// The result of a case.
pub(super) enum Compared {
    Rows(Vec<Row>),
    TimedOut(TimedOut),
}

/// A case that can be simulated.
pub(super) struct GridTest<'a> {
    case: &'a GridCase,
    machine: Machine,
    ior: Ior,
    options: SimOptions,
    /// Expected events of its packets.
    pub events: f64,
}

impl<'a> GridTest<'a> {
    pub fn new(case: &'a GridCase, seed: u64) -> Result<GridTest<'a>, Failure> {
        let machine = Machine::load(&case.machine).map_err(|e| Failure::Failed(e.to_string()))?;
        let words: Vec<String> = case.ior.split_whitespace().map(String::from).collect();
        let mut tests = parse_tests(&words)?.unwrap_or_default();
        let (Some(ior), true) = (tests.pop(), tests.is_empty()) else {
            return Err(Failure::Failed(format!("{case:?} is not one IOR test")));
        };
        let file_system = match case.stripe_count {
            None => FileSystem::BurstBuffer,
            count => FileSystem::Parallel { stripe_count: count, stripe: None },
        };
        let options = SimOptions { seed, file_system, ..SimOptions::default() };
        let forecast = forecast_ior(&machine, &ior, case.nodes, case.ppn, &options)
            .map_err(|e| study_failure(&e))?;
        Ok(GridTest { case, machine, ior, options, events: forecast.events })
    }

    /// Simulates the case at both fidelities, unless the packets' results are known; a row for each phase.
    pub fn compare(
        &self,
        packets: Option<&PacketResults>,
        case_time: Option<Duration>,
        progress: Progress<'_>,
    ) -> Result<Compared, Failure> {
        let known = packets.and_then(|all| all.get(self.case, &self.machine, self.options.seed));
        let of_packets = match known {
            Some(known) => known,
            None => {
                let Some(point) = self.simulate(Fidelity::Packet, case_time, progress)? else {
                    return Ok(Compared::TimedOut(self.timed_out(Fidelity::Packet)));
                };
                let phases = PacketPhase::of(&point);
                if let Some(all) = packets {
                    all.put(self.case, &self.machine, self.options.seed, &phases)?;
                }
                phases
            }
        };
        Ok(match self.simulate(Fidelity::Flow, case_time, progress)? {
            Some(flow) => Compared::Rows(rows(self.case, &of_packets, &flow)),
            None => Compared::TimedOut(self.timed_out(Fidelity::Flow)),
        })
    }

    /// One simulation; `None` if it took longer than `case_time`.
    fn simulate(
        &self,
        fidelity: Fidelity,
        case_time: Option<Duration>,
        progress: Progress<'_>,
    ) -> Result<Option<IorPoint>, Failure> {
        let began = Instant::now();
        let is_late = || case_time.is_some_and(|most| began.elapsed() > most);
        let goes_on = |time, done, events| progress(time, done, events) && !is_late();
        let options = SimOptions { fidelity, ..self.options.clone() };
        let (nodes, ppn) = (self.case.nodes, self.case.ppn);
        match simulate_ior(&self.machine, &self.ior, nodes, ppn, &options, &goes_on) {
            Ok(point) => Ok(Some(point)),
            Err(StudyError::Interrupted) if is_late() => Ok(None),
            Err(error) => Err(study_failure(&error)),
        }
    }

    fn timed_out(&self, fidelity: Fidelity) -> TimedOut {
        let case = self.case.clone();
        TimedOut {
            set: case.set,
            machine: case.machine,
            nodes: case.nodes,
            ppn: case.ppn,
            stripe_count: case.stripe_count,
            ior: case.ior,
            fidelity: fidelity.name(),
        }
    }

    /// The result as a line of progress.
    pub fn line(&self, result: &Compared) -> String {
        let case = self.case;
        let place = file_system_text(case.stripe_count);
        let name = format!(
            "{}, {}, {} x {}, {place}, {}",
            case.set.name(),
            case.machine,
            case.nodes,
            case.ppn,
            case.ior
        );
        match result {
            Compared::TimedOut(case) => format!("{name}: {} took too long", case.fidelity),
            Compared::Rows(rows) => {
                let one = |row: &Row| format!("{} {:+.1}%", row.access, row.difference_percent);
                let each: Vec<String> = rows.iter().map(one).collect();
                let took = rows.first().map_or(0.0, |row| row.packet_seconds);
                format!("{name}: {}; packets took {}", each.join(", "), human::seconds(took))
            }
        }
    }
}

fn rows(case: &GridCase, packet: &[PacketPhase], flow: &IorPoint) -> Vec<Row> {
    let phases = packet.iter().zip(&flow.phases);
    let row = |(of_packet, of_flow): (&PacketPhase, &Phase)| Row {
        set: case.set,
        machine: case.machine.clone(),
        nodes: case.nodes,
        ppn: case.ppn,
        stripe_count: case.stripe_count,
        ior: case.ior.clone(),
        access: of_packet.access.clone(),
        packet_gbps: of_packet.gbps,
        flow_gbps: of_flow.gbps,
        difference_percent: (of_flow.gbps / of_packet.gbps - 1.0) * 100.0,
        packet_limit: of_packet.limit.clone(),
        flow_limit: of_flow.limit.resource.clone(),
        packet_seconds: of_packet.wall_seconds,
        flow_seconds: flow.run.wall_seconds,
    };
    phases.map(row).collect()
}

/// The file system of a case: `burst buffer`, or `pfs -c 4`.
pub(super) fn file_system_text(stripe_count: Option<u32>) -> String {
    match stripe_count {
        None => "burst buffer".to_string(),
        Some(count) => format!("pfs -c {count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> GridCase {
        GridCase {
            set: Set::Build,
            machine: "toy".into(),
            nodes: 1,
            ppn: 1,
            ior: "-F -w -r -t 512k -b 4m".into(),
            stripe_count: None,
        }
    }

    #[test]
    fn case_is_simulated_at_both_fidelities() {
        let case = case();
        let compared = GridTest::new(&case, 1).unwrap().compare(None, None, &|_, _, _| true);
        let Compared::Rows(rows) = compared.unwrap() else { panic!("no rows") };
        assert_eq!(rows.iter().map(|r| r.access.as_str()).collect::<Vec<_>>(), ["write", "read"]);
        assert!(rows.iter().all(|r| r.difference_percent.abs() < 5.0), "{rows:?}");
    }

    #[test]
    fn simulation_beyond_its_time_has_no_rows() {
        let case = case();
        let test = GridTest::new(&case, 1).unwrap();
        let compared = test.compare(None, Some(Duration::ZERO), &|_, _, _| true).unwrap();
        assert!(matches!(compared, Compared::TimedOut(of) if of.fidelity == "packet"));
        // An interruption by the user is an error.
        assert!(test.compare(None, Some(Duration::MAX), &|_, _, _| false).is_err());
    }

    /// The known results are altered, so that rows show their use; flows are simulated anew.
    #[test]
    fn known_results_of_packets_are_used_for_the_same_inputs_only() {
        let directory = std::env::temp_dir().join(format!("forebay-grid-{}", std::process::id()));
        let known = PacketResults::open(&directory).unwrap();
        let case = case();
        let of = |seed, time| {
            let test = GridTest::new(&case, seed).unwrap();
            match test.compare(Some(&known), time, &|_, _, _| true).unwrap() {
                Compared::Rows(rows) => Some(rows),
                Compared::TimedOut(_) => None,
            }
        };
        let simulated = of(1, None).unwrap();
        let machine = Machine::load("toy").unwrap();
        let mut phases = known.get(&case, &machine, 1).unwrap();
        assert_eq!(phases[0].gbps, simulated[0].packet_gbps);
        phases[0].gbps *= 2.0;
        known.put(&case, &machine, 1, &phases).unwrap();
        let again = of(1, None).unwrap();
        assert_eq!(again[0].packet_gbps, 2.0 * simulated[0].packet_gbps);
        assert_eq!(again[0].flow_gbps, simulated[0].flow_gbps);
        assert!(of(2, Some(Duration::ZERO)).is_none(), "another seed is simulated");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
