//! A compute node: it mounts instances for jobs, as the controller commands.

mod driver;
pub(crate) mod relay;

use std::sync::mpsc::sync_channel;

use crate::activity::{StatusSource, counters_of};
use crate::connection::Endpoint;
use crate::error::DaemonError;
use crate::link::{ControllerLink, Delivery};
use crate::messages::{FromController, Role};
use crate::service::Service;
pub(crate) use driver::Setup;
use driver::{Driver, Event};

/// Capacity of the driver's inbox. Further commands are dropped: they are retransmitted.
const INBOX_CAPACITY: usize = 1024;

/// A running compute node.
pub(crate) struct ComputeService {
    pub service: Service,
    pub status_source: StatusSource,
}

/// Connects to the controller and carries out its commands.
pub(crate) fn start(setup: Setup, endpoint: Endpoint) -> Result<ComputeService, DaemonError> {
    let (events, inbox) = sync_channel(INBOX_CAPACITY);
    let commands = events.clone();
    let deliver = move |delivery| match delivery {
        Delivery::Welcome(_) => {}
        Delivery::Command(command) => drop(commands.try_send(Event::Command(command))),
    };
    let command = |message| match message {
        FromController::ComputeCommand(command) => Some(*command),
        FromController::StorageCommand(_)
        | FromController::Reply(..)
        | FromController::QueryReply(..) => None,
    };
    let role = Role::Agent(setup.name.clone());
    let link = ControllerLink::start(endpoint, role, command, deliver)?;
    let driver = Driver::new(setup, link, events.clone());
    let stopper = events.clone();
    let service = Service::spawn(
        "agent",
        move || drop(stopper.send(Event::Stop)),
        move || {
            driver.run(&inbox);
            Ok(())
        },
    )?;
    let ask = move |answer| events.try_send(Event::Activity(answer)).is_ok();
    Ok(ComputeService { service, status_source: counters_of(ask, "the agent is busy") })
}
