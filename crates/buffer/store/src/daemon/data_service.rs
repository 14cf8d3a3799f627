//! Hands connections over to data connection threads.

use super::charged_use::ChargedConnection;
use super::clock::Clock;
use super::connection::Connection;
use super::counters::StoreCounters;
use super::data::{self, DataContext, DataSlots, FenceEpoch, OpenObjects};
use crate::context::Traffic;
use crate::objects::DiskObjects;
use forebay_net::admission::{ConnectionLimits, Principal, WorkerPermit, WorkerPermits};
use forebay_protocol::SessionId;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// The data connections and what they share.
pub struct DataService {
    pub opens: Arc<OpenObjects>,
    pub slots: DataSlots,
    pub permits: WorkerPermits,
    objects: DiskObjects,
    counters: Arc<StoreCounters>,
    clock: Clock,
    idle_timeout: Duration,
}

impl DataService {
    pub fn new(
        limits: ConnectionLimits,
        objects: DiskObjects,
        counters: Arc<StoreCounters>,
        clock: Clock,
    ) -> DataService {
        DataService {
            opens: Arc::default(),
            slots: DataSlots::default(),
            idle_timeout: limits.idle_timeout,
            permits: WorkerPermits::new(limits),
            objects,
            counters,
            clock,
        }
    }

    /// Serve a connection in a thread, which sends the pending reply to the handshake once the
    /// previous connection in the slot has ended.
    pub fn start_connection(
        &self,
        conn: Connection,
        (session, traffic): (SessionId, Arc<Traffic>),
        slot: u32,
        principal: Option<Principal>,
        charged: Option<ChargedConnection>,
    ) {
        self.slots.shut_down_slot(session, slot);
        let permit = principal.and_then(|principal| self.permits.take(principal));
        let Some(permit) = permit else {
            tracing::warn!(?principal, "data connection refused: too many");
            return;
        };
        let socket = match conn.stream.as_fd().try_clone_to_owned() {
            Ok(socket) => socket,
            Err(error) => return tracing::warn!(%error, "data connection refused"),
        };
        let thread = ConnectionThread {
            conn,
            session,
            epoch: self.slots.claim_slot(session, slot, socket),
            opens: self.opens.clone(),
            objects: self.objects.clone(),
            counters: self.counters.clone(),
            traffic,
            charged,
            clock: self.clock,
            idle_timeout: self.idle_timeout,
            _permit: permit,
        };
        let spawned =
            std::thread::Builder::new().name("forebay-data".into()).spawn(move || thread.run());
        if let Err(error) = spawned {
            tracing::warn!(%error, "data connection refused: cannot start thread");
        }
    }
}

/// Fields are dropped in order: the epoch ends before the permit is returned.
struct ConnectionThread {
    conn: Connection,
    session: SessionId,
    opens: Arc<OpenObjects>,
    objects: DiskObjects,
    counters: Arc<StoreCounters>,
    traffic: Arc<Traffic>,
    charged: Option<ChargedConnection>,
    clock: Clock,
    idle_timeout: Duration,
    epoch: FenceEpoch,
    _permit: WorkerPermit,
}

impl ConnectionThread {
    fn run(self) {
        let _span = tracing::error_span!("session", session = self.session.0).entered();
        if !self.epoch.wait_for_predecessor() {
            return;
        }
        let fence = self.epoch.fence().clone();
        match self.serve() {
            Err(_) if fence.is_shut_down() => {}
            Err(error) => tracing::warn!(%error, "data connection closed"),
            Ok(()) => {}
        }
    }

    fn serve(self) -> io::Result<()> {
        let mut conn = self.conn;
        conn.stream.set_nonblocking(false)?;
        conn.send()?;
        let context = DataContext {
            opens: &self.opens,
            objects: &self.objects,
            counters: &self.counters,
            traffic: &self.traffic,
            charged: self.charged.as_ref(),
            clock: self.clock,
            fence: self.epoch.fence(),
            idle_timeout: self.idle_timeout,
        };
        let (sender, receiver) = conn.into_channel();
        data::serve_data_connection(sender, receiver, self.session, context)
    }
}
