//! The event loop: the node and its connections, and what happens to them when something is ready or due.
//! [`EventLoopThread`](super::event_loop_thread::EventLoopThread) runs it.

use super::batch::BatchQueue;
use super::charged_use::ChargedUse;
use super::clock::Clock;
use super::connections::{Connections, Ready, Received};
use super::counters::StoreCounters;
use super::data_service::DataService;
use super::delayed_calls::DelayedCalls;
use super::log_writer::LogWriter;
use super::mailbox::{LoopEvent, Mailbox};
use super::munge_worker::PendingCredential;
use super::object_workers::ObjectWorkers;
use super::peer_links::PeerLinks;
use super::report::StoreGauges;
use super::trusted_hosts::TrustedHosts;
use super::worker::Worker;
use crate::node::{ConnId, Effect, Input, Node};
use crate::objects::DiskObjects;
use forebay_net::auth::Authenticator;
use forebay_protocol::SessionId;
use rustix::event::epoll;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of records that are collected before they are written.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Time after which the requests of batches wait for other requests that have arrived.
const BATCH_TIME: Duration = Duration::from_millis(1);

/// Periodic ticks of the node, which also sync the log.
pub struct Ticker {
    pub interval: Duration,
    pub last: Instant,
}

/// Everything that the thread owns.
pub struct EventLoop {
    pub node: Node<DiskObjects>,
    pub clock: Clock,
    pub ticker: Ticker,
    pub connections: Connections,
    pub data: DataService,
    /// The users' rates; `None`: they are not limited.
    pub rates: Option<Arc<ChargedUse>>,
    /// Calls of users who exceed a rate.
    pub delayed: DelayedCalls,
    /// The batches in progress.
    pub batches: BatchQueue,
    pub log: LogWriter,
    pub workers: ObjectWorkers,
    /// Authenticator of clients on other hosts.
    pub authenticator: Authenticator,
    pub munge_worker: Option<Worker<PendingCredential>>,
    pub trusted_hosts: Option<TrustedHosts>,
    pub peers: PeerLinks,
    pub mailbox: Arc<Mailbox>,
    pub counters: Arc<StoreCounters>,
    /// Effects of the node that are not carried out yet.
    pub effects: Vec<Effect<OwnedFd>>,
    /// Connections that become data connections at the end of the batch.
    pub handovers: Vec<(ConnId, SessionId, u32)>,
    /// Held until the loop has ended.
    pub directory_lock: File,
}

impl EventLoop {
    /// Begin to serve: log the start record.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.commit()?; // the start record, for which space was ensured
        // If it were lost, inode numbers assigned from now on would be assigned again.
        self.log.sync()?;
        self.log.note_metadata(self.node.metadata_bytes())
    }

    /// End, after the storage has failed or the daemon was stopped.
    pub(super) fn end(mut self, served: io::Result<()>) -> io::Result<()> {
        self.mailbox.request_stop();
        self.connections.close_all();
        // The next daemon, perhaps in this process, accepts writes of the same clients.
        self.data.slots.end_all();
        let mut log = self.log.shut_down();
        let removal = self.workers.shut_down();
        let last = log.last_sequence();
        let result = served.and_then(|()| {
            log.flush()?;
            log.close()
        });
        if result.is_ok() {
            // Removals that waited for the sync can begin.
            let synced = Input::LogSynced(last);
            self.node.step(self.clock.now(), synced, &mut self.effects);
        }
        removal.shut_down();
        drop(self.directory_lock);
        result
    }

    /// Process what is ready, and what is due.
    pub(super) fn process_events(&mut self, events: &[epoll::Event]) -> io::Result<()> {
        self.ensure_log_space()?;
        for event in events {
            match Ready::of(event) {
                Ready::Mailbox => self.process_mailbox()?,
                Ready::UnixListener => self.accept_unix(),
                Ready::TcpListener => self.accept_tcp(),
                Ready::Connection(id, flags) => {
                    let received = self.connections.receive(id, flags);
                    self.process_received(id, received);
                }
            }
            if self.node.pending_record_bytes() > MAX_BATCH_BYTES {
                self.commit()?;
                self.ensure_log_space()?;
            }
        }
        self.close_overdue_connections();
        self.resume_delayed_calls();
        self.run_batches()?;
        self.tick()?;
        self.commit()
    }

    fn process_received(&mut self, id: ConnId, received: Received) {
        match received {
            Received::Input => self.process_frames(id),
            Received::Nothing => {}
            Received::Closed => self.close_connection(id),
        }
    }

    /// Carry out the call in `frame` of a client in this process. `false`: the connection does not take
    /// it now.
    pub(super) fn process_call_in_process(&mut self, id: ConnId, frame: &[u8]) -> io::Result<bool> {
        if !self.connections.takes_call(id) {
            return Ok(false);
        }
        self.ensure_log_space()?;
        let received = self.connections.add_input(id, frame);
        self.process_received(id, received);
        self.run_batches()?;
        self.commit()?;
        Ok(true)
    }

    /// Add a connection of a client in this process.
    pub(super) fn accept_in_process(&mut self, socket: UnixStream) -> io::Result<Option<ConnId>> {
        self.ensure_log_space()?;
        let id = self.add_unix_connection(socket);
        self.commit()?;
        Ok(id)
    }

    /// Timeout of the wait for events; `None` if nothing is due.
    pub(super) fn wait_timeout(&self) -> Option<Duration> {
        if !self.batches.is_empty() {
            return Some(Duration::ZERO);
        }
        let mut timeout = None;
        if self.log.is_dirty() || self.log.shrink_is_due() || self.node.needs_tick() {
            let next_tick = self.ticker.interval.saturating_sub(self.ticker.last.elapsed());
            let now_ns = self.clock.now().steady_ns;
            let deadline = self.node.next_deadline_ns();
            let deadline = deadline.map(|ns| Duration::from_nanos(ns.saturating_sub(now_ns)));
            timeout = Some(deadline.map_or(next_tick, |deadline| deadline.min(next_tick)));
        }
        let delayed = self.delayed.next_due();
        let timeouts = self.connections.admission.next_timeout().into_iter().chain(delayed);
        if let Some(due) = timeouts.min() {
            let until = due.saturating_duration_since(Instant::now());
            timeout = Some(timeout.map_or(until, |timeout| timeout.min(until)));
        }
        timeout
    }

    /// Carry out requests of batches, for a limited time.
    fn run_batches(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while let Some((conn, call)) = self.batches.next_call() {
            self.step(Input::Call(conn, call));
            if self.node.pending_record_bytes() > MAX_BATCH_BYTES {
                self.commit()?;
                self.ensure_log_space()?;
            }
            if begun.elapsed() >= BATCH_TIME {
                self.batches.rotate();
                break;
            }
        }
        Ok(())
    }

    /// Step the node. Effects are carried out by the next [`commit`](EventLoop::commit).
    pub fn step(&mut self, input: Input) {
        self.node.step(self.clock.now(), input, &mut self.effects);
    }

    fn tick(&mut self) -> io::Result<()> {
        if self.ticker.last.elapsed() >= self.ticker.interval {
            self.ticker.last = Instant::now();
            self.step(Input::Tick);
            self.log.request_sync();
            return self.log.note_metadata(self.node.metadata_bytes());
        }
        let deadline = self.node.next_deadline_ns();
        if deadline.is_some_and(|deadline| deadline <= self.clock.now().steady_ns) {
            self.step(Input::Tick);
        }
        Ok(())
    }

    fn ensure_log_space(&mut self) -> io::Result<()> {
        let space = self.log.ensure_space()?;
        if self.node.set_log_space(space) != space {
            self.log.report_space(space);
        }
        Ok(())
    }

    /// Write the log, then carry out the effects, until there are neither records nor effects.
    fn commit(&mut self) -> io::Result<()> {
        loop {
            self.log.write_records(self.node.take_records())?;
            for effect in std::mem::take(&mut self.effects) {
                self.carry_out(effect);
            }
            let handovers = std::mem::take(&mut self.handovers);
            for id in self.connections.take_touched() {
                // The thread of a data connection sends the reply to its first request.
                if handovers.iter().all(|(other, ..)| *other != id) {
                    self.flush_connection(id);
                }
            }
            for (id, session, slot) in handovers {
                self.hand_over(id, session, slot);
            }
            if self.effects.is_empty() && !self.node.has_records() {
                return Ok(());
            }
        }
    }

    fn process_mailbox(&mut self) -> io::Result<()> {
        let events = self.mailbox.take_events();
        self.workers.submit_waiting();
        for event in events {
            match event {
                LoopEvent::ObjectDurable(object) => self.step(Input::ObjectDurable(object)),
                LoopEvent::LogSynced(sequence) => {
                    self.log.mark_durable(sequence)?;
                    self.step(Input::LogSynced(sequence));
                }
                LoopEvent::LogFailed => {
                    return Err(io::Error::other("cannot sync the log"));
                }
                LoopEvent::ThreadPanicked(name) => {
                    return Err(io::Error::other(format!("thread {name} panicked")));
                }
                LoopEvent::Reply { conn, seq, reply } => {
                    self.reply(conn, seq, reply, None, false);
                }
                LoopEvent::CredentialVerified { conn, outcome } => {
                    self.finish_handshake(conn, outcome);
                }
                LoopEvent::ChecksumsInvalidated(object, result) => {
                    self.step(Input::ChecksumsInvalidated(object, result));
                }
                LoopEvent::ObjectSynced(object, result) => {
                    self.step(Input::ObjectSynced(object, result));
                }
                LoopEvent::GaugesRequested(sender) => {
                    // A requester whose timeout has expired gets no answer.
                    let _ = sender.try_send(self.gauges());
                }
            }
        }
        Ok(())
    }

    fn gauges(&self) -> StoreGauges {
        let data_connections = self.data.permits.in_use();
        StoreGauges {
            instances: self.node.instance_usage(),
            sessions: self.node.session_count() as u64,
            connections: (self.connections.count() + data_connections) as u64,
            data_connections: data_connections as u64,
            metadata_bytes: self.node.metadata_bytes(),
            metadata_budget_bytes: self.node.metadata_budget_bytes(),
            log_space: self.node.log_space(),
        }
    }
}
