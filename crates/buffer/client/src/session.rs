//! A session with a storage daemon: connections, repetition, recovery after the daemon restarts.

use forebay_wire::auth::{self, PoolKey};
use forebay_wire::message::{CACHE_TIME, Hello, MAX_SLOTS, OpenMode, PROTOCOL, Resume};
use forebay_wire::munge::Munge;
use forebay_wire::stream::{Address, Link, Stream};
use forebay_wire::{Call, Caller, Errno, HandleId, Ino, InstanceId, Reply, Request};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How to reach a daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long to keep trying when the daemon does not answer; then calls fail with `EIO`.
    pub patience: Duration,
    /// Connections for requests; as many can be under way at a time. At most 60.
    pub connections: u32,
    /// The pool's key, for a daemon on another host.
    pub key: Option<PoolKey>,
    /// This host's `munged`, for a daemon on another host; comes before the key.
    pub munge: Option<Munge>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            patience: Duration::from_secs(60),
            connections: 16,
            key: None,
            munge: None,
        }
    }
}

/// The slot on which handles are opened again after a restart.
const RECOVERY_SLOT: u32 = MAX_SLOTS - 1;

#[derive(Debug)]
struct Slot {
    number: u32,
    /// Number of the last call.
    seq: u64,
    link: Option<Link>,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<Slot>,
    made: u32,
    bulk: Vec<Link>,
}

#[derive(Debug, Default)]
struct Identity {
    resume: Option<Resume>,
    recovery_seq: u64,
}

/// The answer to a call.
#[derive(Debug)]
pub struct Said {
    /// The reply.
    pub reply: Reply,
    /// The descriptor that came along.
    pub descriptor: Option<OwnedFd>,
    /// How long it may be believed.
    pub valid: Duration,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    address: Address,
    instance: Option<InstanceId>,
    caches: bool,
    options: Options,
    pool: Mutex<Pool>,
    returned: Condvar,
    identity: Mutex<Identity>,
    epoch: AtomicU64,
    /// Handles to open again after a restart of the daemon.
    handles: Mutex<BTreeMap<HandleId, (Ino, OpenMode)>>,
    next_handle: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Begin a session: with an instance, or without to administer the daemon. `caches`: one cache
    /// sits between the session and all who use it.
    pub fn begin(
        address: Address,
        instance: Option<InstanceId>,
        options: Options,
        caches: bool,
    ) -> Result<Session, Errno> {
        let session = Session {
            address,
            instance,
            caches,
            options,
            pool: Mutex::default(),
            returned: Condvar::new(),
            identity: Mutex::default(),
            epoch: AtomicU64::new(0),
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
        };
        let mut slot = session.take_slot();
        let link = session.persist(|| session.connect(slot.number, 1, false));
        slot.link = Some(link?);
        session.put_slot(slot);
        Ok(session)
    }

    /// Another session with the same instance, for a cache.
    pub fn another_for_cache(&self) -> Result<Session, Errno> {
        Session::begin(
            self.address.clone(),
            self.instance,
            self.options.clone(),
            true,
        )
    }

    /// The daemon's start that the session last spoke to.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// A number for a new handle.
    pub fn new_handle(&self) -> HandleId {
        HandleId(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// The daemon opened a handle; open it again if it restarts.
    pub fn remember(&self, handle: HandleId, ino: Ino, mode: OpenMode) {
        let mode = OpenMode {
            truncate: false,
            descriptor: false,
            ..mode
        };
        lock(&self.handles).insert(handle, (ino, mode));
    }

    /// A handle is being closed.
    pub fn forget(&self, handle: HandleId) {
        lock(&self.handles).remove(&handle);
    }

    fn take_slot(&self) -> Slot {
        let mut pool = lock(&self.pool);
        loop {
            if let Some(slot) = pool.free.pop() {
                return slot;
            }
            if pool.made < self.options.connections.clamp(1, 60) {
                pool.made += 1;
                return Slot {
                    number: pool.made - 1,
                    seq: 0,
                    link: None,
                };
            }
            pool = self
                .returned
                .wait(pool)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put_slot(&self, slot: Slot) {
        lock(&self.pool).free.push(slot);
        self.returned.notify_one();
    }

    /// Make a request; repeat it until it is answered or patience ends. The daemon carries it out
    /// once, however often it is repeated.
    pub fn call(&self, caller: Option<&Caller>, request: Request) -> Result<Said, Errno> {
        let said = self.ask(caller, request)?;
        match said.reply {
            Reply::Failed(errno) => Err(errno),
            _ => Ok(said),
        }
    }

    /// As [`call`](Session::call), but the daemon's refusal is an answer that may be believed, too.
    pub fn ask(&self, caller: Option<&Caller>, request: Request) -> Result<Said, Errno> {
        let sent = Instant::now();
        let mut slot = self.take_slot();
        slot.seq += 1;
        let call = Call {
            seq: slot.seq,
            caller: caller.cloned(),
            request,
        };
        let result = self.persist(|| {
            let mut link = match slot.link.take() {
                Some(link) => link,
                None => self.connect(slot.number, slot.seq, false)?,
            };
            let answer = link.call(&call, &[], &mut [])?;
            slot.link = Some(link);
            Ok(answer)
        });
        self.put_slot(slot);
        let answer = result?;
        let valid = if answer.cacheable {
            Duration::from_nanos(CACHE_TIME).saturating_sub(sent.elapsed())
        } else {
            Duration::ZERO
        };
        Ok(Said {
            reply: answer.reply,
            descriptor: answer.descriptor,
            valid,
        })
    }

    /// Try until it works, is refused, or patience ends.
    fn persist<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> Result<T, Errno> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let error = match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // An error from the daemon, or of its protocol, does not go away by trying again.
            // Only EAGAIN asks for that.
            if let Some(refused) = error.get_ref().and_then(|e| e.downcast_ref::<Errno>())
                && *refused != Errno::EAGAIN
            {
                return Err(*refused);
            }
            if error.kind() == io::ErrorKind::InvalidData {
                tracing::error!(%error, address = %self.address, "cannot talk to storage daemon");
                return Err(Errno::EPROTO);
            }
            if start.elapsed() >= self.options.patience {
                tracing::error!(%error, address = %self.address, "storage daemon does not answer");
                return Err(Errno::EIO);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }

    /// Connect, say who we are, and make sure that the daemon knows our handles.
    fn connect(&self, slot: u32, seq: u64, bulk: bool) -> io::Result<Link> {
        let mut identity = lock(&self.identity);
        let (link, epoch) = match self.greet(&identity, slot, seq, bulk) {
            Err(error) if refused_with(&error, Errno::ESTALE) && identity.resume.is_some() => {
                // The session has expired. Its successor opens what can still be opened.
                *identity = Identity::default();
                self.epoch.store(0, Ordering::Release);
                self.greet(&identity, slot, seq, bulk)
                    .map(|(link, resume, epoch)| {
                        identity.resume = Some(resume);
                        (link, epoch)
                    })?
            }
            other => other.map(|(link, resume, epoch)| {
                identity.resume = Some(resume);
                (link, epoch)
            })?,
        };
        if self.epoch() != epoch {
            if !lock(&self.handles).is_empty() {
                self.reopen(&mut identity)?;
            }
            self.epoch.store(epoch, Ordering::Release);
        }
        drop(identity);
        if bulk {
            link.stream().set_timeout(Some(self.options.patience))?;
        }
        // Metadata calls wait as long as it takes: a sync may take long, and a daemon that dies
        // closes the connection.
        Ok(link)
    }

    fn greet(
        &self,
        identity: &Identity,
        slot: u32,
        seq: u64,
        bulk: bool,
    ) -> io::Result<(Link, Resume, u64)> {
        let stream = Stream::connect(&self.address, Duration::from_secs(5))?;
        let mut link = Link::new(stream);
        let hello = Hello {
            version: PROTOCOL,
            instance: self.instance,
            resume: identity.resume,
            slot,
            bulk,
            caches: self.caches,
        };
        let mut say = |request| {
            let answer = link.call(
                &Call {
                    seq,
                    caller: None,
                    request,
                },
                &[],
                &mut [],
            )?;
            match answer.reply {
                Reply::Failed(errno) => Err(io::Error::other(errno)),
                reply => Ok(reply),
            }
        };
        let mut reply = say(Request::Hello(hello.clone()))?;
        if let Reply::Challenge { nonce } = reply {
            let (munge, key) = (self.options.munge.as_ref(), self.options.key.as_ref());
            say(Request::Prove(auth::prove(munge, key, &nonce)?))?;
            reply = say(Request::Hello(hello))?;
        }
        match reply {
            Reply::Welcome { resume, epoch, .. } => Ok((link, resume, epoch)),
            _ => Err(io::Error::other(Errno::EPROTO)),
        }
    }

    /// The daemon restarted and has forgotten which files are open.
    fn reopen(&self, identity: &mut Identity) -> io::Result<()> {
        let (mut link, _, _) =
            self.greet(identity, RECOVERY_SLOT, identity.recovery_seq + 1, false)?;
        // The daemon checks rights only when a file is opened first; here it takes the word of
        // those it trusts.
        let own = rustix::process::geteuid().as_raw();
        let caller = (own == 0).then_some(Caller {
            uid: 0,
            gid: 0,
            checked: true,
        });
        let handles = lock(&self.handles).clone();
        for (handle, (ino, open)) in handles {
            identity.recovery_seq += 1;
            let request = Request::Open { ino, handle, open };
            let call = Call {
                seq: identity.recovery_seq,
                caller: caller.clone(),
                request,
            };
            if let Reply::Failed(errno) = link.call(&call, &[], &mut [])?.reply {
                tracing::warn!(%errno, %ino, "a file could not be opened again");
            }
        }
        Ok(())
    }

    /// Read or write over a bulk connection. Repeated after failures unless `once`.
    pub fn bulk(
        &self,
        request: Request,
        payload: &[u8],
        into: &mut [u8],
        once: bool,
    ) -> Result<(Reply, usize), Errno> {
        let call = Call {
            seq: 1,
            caller: None,
            request,
        };
        let answer = self.persist(|| {
            let link = lock(&self.pool).bulk.pop();
            let mut link = match link {
                Some(link) => link,
                None => self.connect(0, 1, true)?,
            };
            let answer = match link.call(&call, payload, into) {
                Err(error) if once => {
                    tracing::error!(%error, "it is not known whether an append was carried out");
                    return Err(io::Error::other(Errno::EIO));
                }
                other => other?,
            };
            lock(&self.pool).bulk.push(link);
            Ok(answer)
        })?;
        match answer.reply {
            Reply::Failed(errno) => Err(errno),
            reply => Ok((reply, answer.payload)),
        }
    }

    /// Forget idle bulk connections: a handle opened since the daemon restarted is unknown there.
    pub fn renew(&self) -> Result<(), Errno> {
        lock(&self.pool).bulk.clear();
        self.call(None, Request::StatFs).map(|_| ())
    }
}

fn refused_with(error: &io::Error, errno: Errno) -> bool {
    error
        .get_ref()
        .and_then(|e| e.downcast_ref::<Errno>())
        .is_some_and(|e| *e == errno)
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without the goodbye the session would linger for the time of a lease.
        let slot = lock(&self.pool).free.pop();
        if let Some(Slot {
            seq,
            link: Some(mut link),
            ..
        }) = slot
        {
            let _ = link.stream().set_timeout(Some(Duration::from_secs(5)));
            let call = Call {
                seq: seq + 1,
                caller: None,
                request: Request::Bye,
            };
            let _ = link.call(&call, &[], &mut []);
        }
    }
}
