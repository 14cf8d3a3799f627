//! The controller's driver: one thread steps the state machine over its database; connections come
//! over sockets or from within the process.

mod admission;
mod audit;
mod driver;
mod port;
mod refused;
mod socket;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use forebay_control::controller::{Controller, Request, Settings};

use crate::config::AllowedSources;
use crate::database::Database;
use crate::error::DaemonError;
use crate::service::Service;
use admission::Policy;
use audit::AuditLog;
use driver::Driver;
use forebay_net::admission::SharedAdmission;
use forebay_net::auth::Authenticator;
use forebay_net::listener::Listener;
pub(crate) use port::{Candidate, ConnectionId, ControllerPort, Outbox};

/// Parameters of a controller at its start.
pub(crate) struct Setup {
    /// Its directory, which holds `controller.redb`.
    pub directory: PathBuf,
    pub settings: Settings,
    /// File of the audit log.
    pub audit_log: Option<PathBuf>,
    /// The pool's id: storage nodes refuse the controller of another pool.
    pub pool_id: String,
    /// Addresses from which each storage node may connect.
    pub allowed_sources: BTreeMap<String, AllowedSources>,
    /// The hosts from which root and the operator may administer; `None`: all.
    pub administrators: Option<AllowedSources>,
    /// The user with the rights of root.
    pub operator: u32,
    /// The only user besides root who may connect.
    pub only_user: Option<u32>,
    /// The process that owns the pool, of an embedded one.
    pub process: Option<u32>,
    /// Time between ticks.
    pub tick_interval: Duration,
    /// Held as long as the controller runs.
    pub lock: Option<File>,
}

/// Parts of a configuration that a running controller can change.
pub(crate) struct Reload {
    /// Without effect on the secret and on where jobs see their mounts.
    pub settings: Settings,
    pub allowed_sources: BTreeMap<String, AllowedSources>,
    pub only_user: Option<u32>,
    /// Requests that make pool and nodes as configured.
    pub requests: Vec<Request>,
}

/// A running controller.
pub(crate) struct ControllerService {
    pub port: ControllerPort,
    pub service: Service,
}

/// Restores the controller, applies the requests that `configure` derives from its restored state,
/// and starts its driver.
pub(crate) fn start(
    setup: Setup,
    configure: impl FnOnce(&Controller) -> Result<Vec<Request>, DaemonError>,
) -> Result<ControllerService, DaemonError> {
    let file = setup.directory.join("controller.redb");
    let records = Database::open(&file).map_err(DaemonError::new)?;
    let rows = records.load_records().map_err(DaemonError::new)?;
    let controller = Controller::restore(setup.settings, rows).map_err(DaemonError::new)?;
    let requests = configure(&controller)?;
    let policy = Policy {
        pool_id: setup.pool_id,
        allowed_sources: setup.allowed_sources,
        administrators: setup.administrators,
        operator: setup.operator,
        only_user: setup.only_user,
    };
    let (tick_interval, process) = (setup.tick_interval, setup.process);
    let mut driver = Driver::new(controller, records, policy, tick_interval, process);
    driver.audit = setup.audit_log.map(open_audit_log).transpose()?;
    for request in requests {
        let outcome = driver.apply(request).map_err(DaemonError::new)?;
        outcome.map_err(DaemonError::new)?;
    }
    let (port, inbox) = ControllerPort::new(driver.refused.clone());
    let (stopper, lock) = (port.clone(), setup.lock);
    let service = Service::spawn(
        "controller",
        move || stopper.stop(),
        move || {
            let outcome = driver.run(&inbox);
            drop(lock);
            outcome
        },
    )?;
    Ok(ControllerService { port, service })
}

fn open_audit_log(path: PathBuf) -> Result<AuditLog, DaemonError> {
    let shown = path.display().to_string();
    AuditLog::open(path).map_err(|error| DaemonError::new(format!("{shown}: {error}")))
}

impl ControllerService {
    /// Serves the connections of a socket, until the listener is dropped.
    pub fn serve(
        &self,
        listener: &Listener,
        admission: &SharedAdmission,
        identity: &Authenticator,
    ) -> Result<(), DaemonError> {
        let (port, identity) = (self.port.clone(), identity.clone());
        let served = listener.serve(admission.clone(), move |stream, permit| {
            socket::serve(stream, permit, &port, &identity);
        });
        served.map_err(DaemonError::with_context("cannot start a thread"))
    }
}
