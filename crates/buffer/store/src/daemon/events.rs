//! The event loop of the metadata thread.

use super::blocking_io::{self, start_blocking_workers};
use super::checkpointer::start_checkpointer;
use super::checksummer::{self, WrittenObjects, start_checksummer};
use super::connection::Connection;
use super::counters::StoreGauges;
use super::data::{DataSlots, OpenObjects};
use super::doors::{Doors, Seats};
use super::munge_worker::{PendingCredential, start_munge_worker};
use super::peer_links::PeerLinks;
use super::syncer::{SyncJob, start_syncer};
use super::{InvalidOptions, LoopParts};
use crate::node::{ConnId, Effect, Input};
use crate::objects::RemovalQueue;
use forebay_protocol::SessionId;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const WAKE: u64 = 0;
const UNIX: u64 = 1;
const TCP: u64 = 2;
const FIRST_CONN: u64 = 16;
/// Bytes of records that are gathered before they are written.
const MAX_BATCH: usize = 256 << 10;

/// A thread, and how it is given work.
type Worker<T> = (SyncSender<T>, JoinHandle<()>);

/// The metadata thread: it has the name space and the connections, and waits only in `epoll`.
pub struct EventLoop {
    pub(super) parts: LoopParts,
    sync_interval: Duration,
    pub(super) epoll: OwnedFd,
    pub(super) unix: UnixListener,
    pub(super) tcp: Option<TcpListener>,
    pub(super) conns: HashMap<ConnId, Connection>,
    pub(super) next_conn: u64,
    pub(super) scratch: Vec<u8>,
    pub(super) effects: Vec<Effect<OwnedFd>>,
    pub(super) touched: Vec<ConnId>,
    pub(super) syncer: Option<Worker<SyncJob>>,
    pub(super) keeper: Option<Worker<u64>>,
    pub(super) segment_size: u64,
    pub(super) sealer: Option<Worker<checksummer::ChecksumJob>>,
    pub(super) written: Arc<WrittenObjects>,
    pub(super) fetchers: Option<(SyncSender<blocking_io::BlockingJob>, Vec<JoinHandle<()>>)>,
    remover: Option<(Arc<RemovalQueue>, JoinHandle<()>)>,
    pub(super) decoder: Option<SyncSender<PendingCredential>>,
    pub(super) checkpointed: u64,
    last_tick: Instant,
    pub(super) sync_under_way: u64,
    pub(super) opens: Arc<OpenObjects>,
    pub(super) doors: Doors,
    pub(super) seats: Seats,
    pub(super) lanes: DataSlots,
    pub(super) bulk_pending: Vec<(ConnId, SessionId, u32)>,
    pub(super) peers: PeerLinks,
}

impl EventLoop {
    pub fn new(
        parts: LoopParts,
        options: InvalidOptions,
        unix: UnixListener,
        tcp: Option<TcpListener>,
    ) -> io::Result<EventLoop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let input = epoll::EventFlags::IN;
        unix.set_nonblocking(true)?;
        epoll::add(&epoll, &*parts.wake, epoll::EventData::new_u64(WAKE), input)?;
        epoll::add(&epoll, &unix, epoll::EventData::new_u64(UNIX), input)?;
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true)?;
            epoll::add(&epoll, tcp, epoll::EventData::new_u64(TCP), input)?;
        }
        let syncer = start_syncer(
            parts.counters.clone(),
            parts.objects.clone(),
            parts.storage.clone(),
            parts.wake.clone(),
        )?;
        let keeper = start_checkpointer(parts.storage.clone(), options.segment_size)?;
        let written = Arc::<WrittenObjects>::default();
        let sealer = start_checksummer(
            parts.objects.clone(),
            parts.wake.clone(),
            written.clone(),
            options.checksum_interval,
        )?;
        let fetchers = start_blocking_workers(&parts.objects, &parts.wake)?;
        let remover = start_remover(parts.objects.removal_queue())?;
        let munge = options.munge;
        let decoder = match munge.clone() {
            Some(munge) => Some(start_munge_worker(munge, parts.wake.clone())?),
            None => None,
        };
        Ok(EventLoop {
            parts,
            sync_interval: options.sync_interval,
            epoll,
            unix,
            tcp,
            conns: HashMap::new(),
            next_conn: FIRST_CONN,
            scratch: vec![0; 64 << 10],
            effects: Vec::new(),
            touched: Vec::new(),
            syncer: Some(syncer),
            keeper: Some(keeper),
            segment_size: options.segment_size,
            sealer: Some(sealer),
            written,
            fetchers: Some(fetchers),
            remover: Some(remover),
            decoder,
            checkpointed: 0,
            last_tick: Instant::now(),
            sync_under_way: 0,
            opens: Arc::default(),
            doors: Doors::new(options.doors.clone()),
            seats: Seats::new(options.doors),
            lanes: DataSlots::default(),
            bulk_pending: Vec::new(),
            peers: PeerLinks::new(options.key, munge),
        })
    }

    /// Serve until told to stop or the storage fails.
    pub fn run(&mut self) -> io::Result<()> {
        let result = self.serve();
        if let Err(error) = &result {
            tracing::error!(%error, "the storage daemon stops: its storage failed");
        }
        self.conns.clear();
        end(self.syncer.take());
        end(self.keeper.take());
        if let Some((sender, threads)) = self.fetchers.take() {
            drop(sender);
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
        // It stops in the middle of an object.
        self.parts.wake.stop.store(true, Ordering::Release);
        end(self.sealer.take());
        if result.is_ok() {
            self.parts.log.flush()?;
            self.parts.log.sync()?;
            // What was to be removed once that is durable can go now.
            let sequence = self.parts.log.last_sequence();
            self.step(Input::LogSynced(sequence));
        }
        if let Some((leaving, thread)) = self.remover.take() {
            leaving.stop_worker();
            let _ = thread.join();
        }
        let _ = &self.parts.lock; // held until here
        result
    }

    fn serve(&mut self) -> io::Result<()> {
        self.commit()?; // the record of this start, for which there is room
        // Were it lost, the numbers that inodes get from now on would be given again to others.
        self.parts.log.sync()?;
        let mut events = Vec::with_capacity(256);
        while !self.parts.wake.stop.load(Ordering::Acquire) {
            events.clear();
            let wait = self.timeout();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                wait.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.ensure_log_space()?;
            for event in &events {
                match event.data.u64() {
                    WAKE => self.woken()?,
                    UNIX => self.accept_unix(),
                    TCP => self.accept_tcp(),
                    id => self.ready(ConnId(id), event.flags),
                }
                if self.batch_is_full() {
                    self.commit()?;
                    self.ensure_log_space()?;
                }
            }
            self.close_overdue();
            self.tick();
            self.commit()?;
        }
        Ok(())
    }

    /// Without anything under way there is nothing to wake up for.
    fn timeout(&self) -> Option<Timespec> {
        let dirty = self.parts.log.last_sequence() > self.sync_under_way;
        let idle = !dirty && !self.parts.node.needs_tick();
        let mut left = (!idle).then(|| {
            let left = self.sync_interval.saturating_sub(self.last_tick.elapsed());
            let due = self.parts.node.next_deadline_ns();
            let now = self.parts.clock.now().steady_ns;
            due.map_or(left, |due| {
                left.min(Duration::from_nanos(due.saturating_sub(now)))
            })
        });
        if let Some(due) = self.doors.due() {
            let until = due.saturating_duration_since(Instant::now());
            left = Some(left.map_or(until, |left| left.min(until)));
        }
        left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        })
    }

    fn batch_is_full(&self) -> bool {
        self.parts.node.pending_record_bytes() > MAX_BATCH
    }

    pub(super) fn step(&mut self, input: Input) {
        let now = self.parts.clock.now();
        self.parts.node.step(now, input, &mut self.effects);
    }

    fn tick(&mut self) {
        if self.last_tick.elapsed() < self.sync_interval {
            if let Some(due) = self.parts.node.next_deadline_ns()
                && due <= self.parts.clock.now().steady_ns
            {
                self.step(Input::Tick);
            }
            return;
        }
        self.last_tick = Instant::now();
        self.step(Input::Tick);
        self.sync_log();
    }

    /// Write the log, then do what was decided.
    fn commit(&mut self) -> io::Result<()> {
        loop {
            for record in self.parts.node.take_records() {
                self.parts.log.append(&record)?;
                self.parts.counters.records.increment();
                self.parts.counters.record_bytes.add(record.len() as u64);
            }
            self.parts.log.flush()?;
            let effects = std::mem::take(&mut self.effects);
            for effect in effects {
                self.carry_out(effect);
            }
            let bulk = std::mem::take(&mut self.bulk_pending);
            for conn in std::mem::take(&mut self.touched) {
                // A bulk connection's own thread answers its greeting, when it may.
                if bulk.iter().all(|(other, ..)| *other != conn) {
                    self.push_out(conn);
                }
            }
            for (conn, session, lane) in bulk {
                self.hand_over(conn, session, lane);
            }
            if self.effects.is_empty() && !self.parts.node.has_records() {
                return Ok(());
            }
        }
    }

    fn woken(&mut self) -> io::Result<()> {
        let done = self.parts.wake.take_completions();
        self.tell();
        for (conn, seq, credential) in self.parts.wake.take_decoded_credentials() {
            self.step(Input::MungeDecoded(conn, seq, credential));
            self.doors.proving(conn, false);
            self.admit(conn);
        }
        for (object, result) in self.parts.wake.take_invalidated() {
            self.step(Input::ChecksumsInvalidated(object, result));
        }
        for done in done {
            if done.failed {
                return Err(io::Error::other("the log cannot be made durable"));
            }
            self.parts.log.mark_durable(done.sequence);
            self.step(Input::LogSynced(done.sequence));
            for (conn, seq, reply) in done.replies {
                self.reply(conn, seq, &reply, None, false);
            }
        }
        Ok(())
    }

    /// Tell those who asked what there is at the moment.
    fn tell(&self) {
        let asked = self.parts.wake.take_gauge_requests();
        if asked.is_empty() {
            return;
        }
        let bulk = self.seats.taken();
        let present = StoreGauges {
            instances: self.parts.node.instance_usage(),
            sessions: self.parts.node.session_count() as u64,
            connections: (self.conns.len() + bulk) as u64,
            log_space: self.parts.node.log_space(),
        };
        for sender in asked {
            // Whoever has lost patience gets no answer.
            let _ = sender.try_send(present.clone());
        }
    }
}

/// Starts the thread that removes the objects of removed instances.
fn start_remover(leaving: Arc<RemovalQueue>) -> io::Result<(Arc<RemovalQueue>, JoinHandle<()>)> {
    let shared = leaving.clone();
    let thread = std::thread::Builder::new()
        .name("forebay-remove".into())
        .spawn(move || shared.run_worker())?;
    Ok((leaving, thread))
}

/// Waits for a thread that ends when nobody can give it work any more.
fn end<T>(worker: Option<Worker<T>>) {
    if let Some((work, thread)) = worker {
        drop(work);
        let _ = thread.join();
    }
}
