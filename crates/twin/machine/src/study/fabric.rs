//! The two fabrics that carry the data of IOR: packets and flows.

use super::error::StudyError;
use super::forecast::forecast_of;
use super::ior::{ior_point, point};
use super::options::{Fidelity, SimOptions};
use super::run::{Progress, run};
use crate::flow::{self, CallsBy, FlowOutcome};
use crate::io::IoJob;
use crate::results::IorPoint;
use crate::scenario::Scenario;

/// A fabric for the data of an IOR job between its clients and servers. Both fabrics simulate the same
/// scenario, that is the same machine, topology, nodes, instance, file layout and calls, and give the same
/// document.
pub(super) trait TransferFabric {
    /// Its name in results.
    fn fidelity(&self) -> Fidelity;

    /// Simulates the scenario's IOR job, which the fabric can represent.
    ///
    /// # Errors
    /// [`StudyError::Interrupted`] if `progress` ends the simulation.
    fn simulate(
        &self,
        scenario: &Scenario,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<IorPoint, StudyError>;
}

/// The fabric that simulates each packet at each link.
struct PacketFabric;

impl TransferFabric for PacketFabric {
    fn fidelity(&self) -> Fidelity {
        Fidelity::Packet
    }

    fn simulate(
        &self,
        scenario: &Scenario,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<IorPoint, StudyError> {
        Ok(ior_point(scenario, run(scenario, options, progress)?))
    }
}

/// The fabric of max-min fair rates.
struct FlowFabric;

impl TransferFabric for FlowFabric {
    fn fidelity(&self) -> Fidelity {
        Fidelity::Flow
    }

    fn simulate(
        &self,
        scenario: &Scenario,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<IorPoint, StudyError> {
        let Some(job) = scenario.io.first() else { unreachable!("a scenario without an IOR job") };
        let outcome = flow::simulate(scenario, (job, CallsBy::Requests), options, progress)?;
        Ok(flow_point(job, outcome))
    }
}

/// The document of an IOR job that was simulated with flows.
pub(super) fn flow_point(job: &IoJob, outcome: FlowOutcome) -> IorPoint {
    let left_out = flow::LEFT_OUT.iter().map(|text| text.to_string()).collect();
    let fidelity = Fidelity::Flow.name().into();
    IorPoint { fidelity, left_out, ..point(job, outcome.phases, outcome.cost) }
}

/// The fabric for a test: that of the options or, with [`Fidelity::Auto`], packets if they are cheap or
/// flows cannot represent the test, else flows.
///
/// # Errors
/// [`StudyError`] with the option that flows cannot represent.
pub(super) fn fabric_for(
    scenario: &Scenario,
    options: &SimOptions,
) -> Result<&'static dyn TransferFabric, StudyError> {
    let Some(job) = scenario.io.first() else { unreachable!("a scenario without an IOR job") };
    let check = flow::check(job, options);
    let events = || Ok(forecast_of(scenario, options).events);
    Ok(match options.fidelity.chosen(&check, events)? {
        Fidelity::Flow => &FlowFabric,
        Fidelity::Packet | Fidelity::Auto => &PacketFabric,
    })
}
