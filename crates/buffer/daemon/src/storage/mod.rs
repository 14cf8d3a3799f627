//! A storage node: its daemon's data for clients, its fragments and stages for the controller.

mod copy_instance;
mod driver;
mod fragments;
mod health;
mod mover_barrier;
mod movers;
mod run_stage;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use forebay_control::storage_node::StorageNode;
use forebay_store::daemon::{self, Daemon};

use crate::activity::{StatusSource, counters_of};
use crate::connection::Endpoint;
use crate::database::Database;
use crate::error::DaemonError;
use crate::link::ControllerLink;
use crate::messages::{FromController, Role};
use crate::mounts::{Mounts, StorageAccess};
use crate::service::Service;
use driver::{CommandQueue, Driver, Event};
pub use fragments::{create_fragment, destroy_fragment};
pub use run_stage::{AttachedInstances, run_stage, share_of, verify_mode};

/// Name of the file with the node's records, in its directory.
pub(crate) const RECORDS: &str = "node.redb";

/// Parameters of a storage node at its start.
pub(crate) struct Setup {
    /// Its name in the pool.
    pub name: String,
    /// The host's name in metrics, and of its private directories.
    pub host: String,
    /// Its directory, which holds `node.redb`, `flash`, `journals` and `mounts`.
    pub directory: PathBuf,
    pub store: daemon::StoreOptions,
    /// The storage daemon's address as the controller lists it; empty if it lists none.
    pub address: String,
    /// Options of the movers' sessions with storage daemons.
    pub client: forebay_client::ClientOptions,
    /// Time between reports of counters.
    pub activity_interval: Duration,
    /// Held as long as the storage node runs.
    pub lock: Option<File>,
}

/// A running storage node.
pub(crate) struct StorageService {
    pub service: Service,
    pub status_source: StatusSource,
    /// The sessions that movers use.
    pub mounts: Arc<Mounts>,
}

/// Recovers the state in the node's directory, serves clients, and connects to the controller.
/// `on_failure` is called when the driver fails.
pub(crate) fn start(
    setup: Setup,
    endpoint: Endpoint,
    on_failure: impl FnOnce() + Send + 'static,
) -> Result<StorageService, DaemonError> {
    let records = Database::open(&setup.directory.join(RECORDS)).map_err(DaemonError::new)?;
    let rows = records.load_records().map_err(DaemonError::new)?;
    let mut store = setup.store;
    store.instances = StorageNode::instances_in(&rows).map_err(DaemonError::new)?;
    store.fences = StorageNode::fences_in(&rows).map_err(DaemonError::new)?;
    let daemon = Daemon::start(store).map_err(DaemonError::new)?;
    let access =
        StorageAccess { own: vec![(setup.address, daemon.address())], options: setup.client };
    let mounts = setup.directory.join("mounts");
    let mounts = Arc::new(Mounts::new(mounts, setup.host.clone(), access));
    let (events, inbox) = channel();
    let commands = CommandQueue::new(events.clone());
    let command = |message| match message {
        FromController::StorageCommand(command) => Some(*command),
        FromController::ComputeCommand(_)
        | FromController::Reply(..)
        | FromController::QueryReply(..) => None,
    };
    let queue = commands.clone();
    let deliver = move |delivery| queue.deliver(delivery);
    let role = Role::Storage(setup.name);
    let link = ControllerLink::start(endpoint, role, command, deliver)?;
    let driver = Driver::new(driver::Parts {
        host: setup.host,
        directory: setup.directory,
        records,
        daemon,
        mounts: mounts.clone(),
        link,
        commands,
        events: events.clone(),
        activity_interval: setup.activity_interval,
        lock: setup.lock,
    })
    .map_err(DaemonError::new)?;
    let stopper = events.clone();
    let service = Service::spawn(
        "storage",
        move || drop(stopper.send(Event::Stop)),
        move || driver.run(&inbox).inspect_err(|_| on_failure()),
    )?;
    let ask = move |answer| events.send(Event::Activity(answer)).is_ok();
    let status_source = counters_of(ask, "the storage node is busy or has stopped");
    Ok(StorageService { service, status_source, mounts })
}
