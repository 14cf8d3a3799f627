//! A storage node as a daemon: data for clients, fragments and stages for the controller.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_protocol::address::Address;
use forebay_store::daemon::{self, Daemon};

use super::config::{PoolConfig, StorageConfig};
use super::link::{ControllerLink, Delivery};
use super::messages::{Role, Welcome};
use super::{DaemonError, create_private_directory, lock_directory, write_atomically};
use crate::activity::Status;
use crate::activity::StatusSource;
use crate::database::Database;
use crate::embedded::{Event, StorageDriver, now};
use crate::mounts::{Mounts, StorageAccess};
use forebay_control::storage_node::{StorageInput, StorageNode};

/// Time between ticks, and while copies are under way, so that their progress is seen.
const TICKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(200));
/// Orders that wait to be carried out; more are dropped, since they are repeated.
const WAITING: usize = 1024;

/// A running storage node. Dropping it stops it.
pub struct StorageDaemon {
    events: Sender<Event>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl StorageDaemon {
    /// Recovers what is in the node's directory, begins to serve clients, and looks for the
    /// controller.
    pub fn start(config: &PoolConfig, name: &str) -> Result<StorageDaemon, DaemonError> {
        let node = config.storage_node(name).ok_or_else(|| {
            let file = config.file.display();
            DaemonError::new(format!(
                "{file}: there is no storage node `{name}`; name one of [[storage]] with --name"
            ))
        })?;
        let identity = config.identity()?;
        let home = &node.directory;
        // Clients of this host enter it for the socket; what is in it is closed to them.
        create_private_directory(home, 0o711)?;
        let lock = lock_directory(home)?;
        create_private_directory(&home.join("journals"), 0o700)?;
        let records = Database::open(&home.join("node.redb")).map_err(DaemonError::new)?;
        let mut options = daemon::InvalidOptions::new(home.join("flash"));
        options.socket = node.socket();
        options.tcp = Some(node.address);
        options.key = identity.key.clone();
        options.munge = identity.munge.clone();
        options.direct = node.direct;
        let daemon = Daemon::start(options).map_err(DaemonError::new)?;
        let reach = StorageAccess {
            own: Some((node.address.to_string(), daemon.address())),
            options: forebay_client::ClientOptions {
                timeout: config.storage_timeout,
                key: identity.key.clone(),
                munge: identity.munge.clone(),
                ..forebay_client::ClientOptions::default()
            },
        };
        let views = Mounts::new(home.join("mounts"), name.to_owned(), reach);
        let (events, inbox) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (told, count) = (events.clone(), waiting.clone());
        let deliver = move |received| match received {
            Delivery::Welcome(welcome) => told.send(Event::Welcome(welcome)).is_ok(),
            // From a controller that takes this host for a compute node.
            Delivery::ComputeCommand(_) => true,
            Delivery::StorageCommand(order) => {
                if count.fetch_add(1, Ordering::AcqRel) >= WAITING {
                    count.fetch_sub(1, Ordering::AcqRel);
                    return true;
                }
                told.send(Event::Order(order)).is_ok()
            }
        };
        let controller = Address::Tcp(config.controller);
        let role = Role::Storage(name.to_owned());
        let link = ControllerLink::start(controller, role, identity, deliver)?;
        let run = Run {
            flash: None,
            idle: Some((records, daemon, views)),
            config: node.clone(),
            events: events.clone(),
            waiting,
            link,
            _lock: lock,
        };
        let thread = std::thread::Builder::new()
            .name("forebay-storage".into())
            .spawn(move || run.run(&inbox))
            .map_err(DaemonError::with_context("no thread can be made"))?;
        Ok(StorageDaemon {
            events,
            thread: Some(thread),
        })
    }

    /// What it does, again and again, for another thread.
    pub fn source(&self) -> StatusSource {
        let events = self.events.clone();
        Box::new(move || {
            let (answer, activity) = sync_channel(1);
            let sent = events.send(Event::Activity(answer));
            sent.map_err(|_| "the storage node has ended".to_owned())?;
            let activity = activity.recv_timeout(TICKS.0);
            let activity = activity.map_err(|_| "the storage node is busy".to_owned())?;
            Ok(Status {
                activity: vec![activity],
                ..Status::default()
            })
        })
    }

    /// Whether it has ended by itself, because its storage failed or belongs to another pool.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it and makes everything durable; why it had ended, if it had.
    pub fn stop(mut self) -> Result<(), DaemonError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DaemonError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let _ = self.events.send(Event::Stop);
        match thread.join() {
            Ok(outcome) => outcome.map_err(DaemonError::new),
            Err(_) => Err(DaemonError::new("the storage node's thread has failed")),
        }
    }
}

impl Drop for StorageDaemon {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

struct Run {
    /// Once the controller has said which node this is.
    flash: Option<StorageDriver>,
    /// Until then.
    idle: Option<(Database, Daemon, Mounts)>,
    config: StorageConfig,
    events: Sender<Event>,
    waiting: Arc<AtomicUsize>,
    link: ControllerLink,
    _lock: std::fs::File,
}

impl Run {
    fn run(mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let outcome = self.serve(inbox);
        if let Err(reason) = &outcome {
            tracing::error!(reason, "the storage node stops");
        }
        drop(self.link);
        let stopped = match (self.flash, self.idle) {
            (Some(flash), _) => flash.stop(),
            (None, Some((_, daemon, _))) => daemon.stop().map_err(|e| e.to_string()),
            (None, None) => Ok(()),
        };
        outcome.and(stopped)
    }

    fn serve(&mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let (mut ticked, mut told) = (Instant::now(), Instant::now());
        loop {
            let busy = self.flash.as_ref().is_some_and(StorageDriver::is_busy);
            let tick = if busy { TICKS.1 } else { TICKS.0 };
            match inbox.recv_timeout(tick.saturating_sub(ticked.elapsed())) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(event) => self.event(event)?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let ticks = ticked.elapsed() >= tick;
            if ticks {
                ticked = Instant::now();
            }
            if let Some(flash) = &mut self.flash {
                if ticks {
                    flash.tick()?;
                }
                for report in flash.settle()? {
                    self.link.send_report(report);
                }
                if told.elapsed() >= TICKS.0 {
                    told = Instant::now();
                    self.link.send_activity(flash.activity(&self.config.name));
                }
            } else if let Some((_, daemon, _)) = &self.idle
                && daemon.has_ended()
            {
                return Err("the storage daemon has ended: its storage failed".to_owned());
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), String> {
        if let Event::Order(_) = &event {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        match (event, &mut self.flash) {
            (Event::Welcome(welcome), _) => self.welcome(&welcome)?,
            (Event::Order(order), Some(flash)) => flash.take(StorageInput::Command(order)),
            (Event::Node(StorageInput::MoverEnded(stage, attempt, outcome)), Some(flash)) => {
                flash.copied(stage, attempt, outcome);
            }
            (Event::Node(input), Some(flash)) => flash.take(input),
            (Event::Activity(answer), Some(flash)) => {
                // Who asked may have gone.
                let _ = answer.try_send(flash.activity(&self.config.name));
            }
            (Event::Attached(plan, outcome), Some(flash)) => flash.attached(plan, outcome),
            // Before the controller has said which node this is there is nothing to do; and what
            // is asked of embedded pools is not asked here.
            _ => {}
        }
        Ok(())
    }

    /// The controller says which node this is.
    fn welcome(&mut self, welcome: &Welcome) -> Result<(), String> {
        let home = &self.config.directory;
        belongs(home, &welcome.pool)?;
        let id = welcome
            .node
            .ok_or("the controller does not say which node this is")?;
        if let Some(flash) = &mut self.flash {
            flash.set_granules(welcome.granules);
            return Ok(());
        }
        let Some((records, daemon, views)) = self.idle.take() else {
            return Ok(());
        };
        let rows = records.load_records().map_err(|e| e.to_string())?;
        let node =
            StorageNode::restore(id, welcome.granules, now(), rows).map_err(|e| e.to_string())?;
        let journals = home.join("journals");
        let events = self.events.clone();
        let flash = StorageDriver::new(node, records, daemon, Arc::new(views), journals, events)?;
        flash.sweep(|_| true);
        self.flash = Some(flash);
        tracing::info!(node = id.0, pool = welcome.pool, "in service");
        Ok(())
    }
}

/// Refuses a directory with data of another pool: its controller would have that data destroyed.
fn belongs(home: &Path, pool: &str) -> Result<(), String> {
    let file = home.join("pool");
    let fail = |error: std::io::Error| format!("{}: {error}", file.display());
    match std::fs::read_to_string(&file) {
        Ok(known) if known.trim() == pool => Ok(()),
        Ok(known) => Err(format!(
            "{}: this directory belongs to pool {}, but the controller's is {pool}. Give the \
             controller its own state back, or empty the directory if nobody needs its data",
            file.display(),
            known.trim()
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            write_atomically(&file, format!("{pool}\n").as_bytes(), 0o644).map_err(fail)
        }
        Err(error) => Err(fail(error)),
    }
}
