//! The two fabrics that carry the data of IOR: packets and flows.

use super::error::StudyError;
use super::forecast::forecast_of;
use super::ior::{ior_point, point};
use super::options::{Fidelity, SimOptions};
use super::run::{Progress, run};
use crate::flow;
use crate::io::IoJob;
use crate::results::IorPoint;
use crate::scenario::Scenario;

/// A fabric for the data of an IOR job between its clients and servers. Both fabrics simulate the same
/// scenario, that is the same machine, topology, nodes, instance, file layout and calls, and give the same
/// document.
pub(super) trait TransferFabric {
    /// Its name in results.
    fn fidelity(&self) -> Fidelity;

    /// Checks that the fabric can represent a job.
    ///
    /// # Errors
    /// [`StudyError`] with the option that it cannot represent.
    fn check(&self, job: &IoJob, options: &SimOptions) -> Result<(), StudyError>;

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

    fn check(&self, _: &IoJob, _: &SimOptions) -> Result<(), StudyError> {
        Ok(())
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

    fn check(&self, job: &IoJob, options: &SimOptions) -> Result<(), StudyError> {
        flow::check(job, options)
    }

    fn simulate(
        &self,
        scenario: &Scenario,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<IorPoint, StudyError> {
        let Some(job) = scenario.io.first() else { unreachable!("a scenario without an IOR job") };
        let (phases, cost) = flow::simulate(scenario, job, options, progress)?;
        let left_out = flow::LEFT_OUT.iter().map(|text| text.to_string()).collect();
        let fidelity = self.fidelity().name().into();
        Ok(IorPoint { fidelity, left_out, ..point(job, phases, cost) })
    }
}

/// The fabric for a test: that of the options or, with [`Fidelity::Auto`], packets if they are cheap or
/// flows cannot represent the test, else flows.
///
/// # Errors
/// As [`TransferFabric::check`].
pub(super) fn fabric_for(
    scenario: &Scenario,
    options: &SimOptions,
) -> Result<&'static dyn TransferFabric, StudyError> {
    let Some(job) = scenario.io.first() else { unreachable!("a scenario without an IOR job") };
    let fabric: &dyn TransferFabric = match options.fidelity {
        Fidelity::Packet => &PacketFabric,
        Fidelity::Flow => &FlowFabric,
        Fidelity::Auto => {
            let events = forecast_of(scenario, options).events;
            let is_cheap = events <= Fidelity::MOST_EVENTS;
            let packets = is_cheap || FlowFabric.check(job, options).is_err();
            if packets { &PacketFabric } else { &FlowFabric }
        }
    };
    fabric.check(job, options).map(|()| fabric)
}
