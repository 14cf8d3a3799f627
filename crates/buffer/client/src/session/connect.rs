//! Connections of a session: attaching, recovery of the state that a restarted daemon has lost, and the end.

use super::open_handles::OpenHandle;
use super::{OpenedBy, ReplyCaches, Session, SessionIdentity, Slot};
use crate::backoff::Backoff;
use crate::system::Connection;
use forebay_net::auth::Authenticator;
use forebay_net::handshake::{Refusal, ServerNotAuthenticated};
use forebay_protocol::message::{
    Attach, FileRequest, PROTOCOL_VERSION, RECOVERY_SLOT, SessionRequest, SessionToken,
    TrailingField,
};
use forebay_protocol::{Call, Credentials, Errno, Reply};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Timeout of connecting to a daemon on another host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of each reply while attaching.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of the request that ends a session.
const BYE_TIMEOUT: Duration = Duration::from_secs(5);
/// Backoff of reconnects; the timeout is that of the session.
const RECONNECT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(1), Duration::from_millis(100), Duration::MAX);

impl Session {
    /// Repeats `attempt` until it succeeds, is refused, or the timeout elapses.
    pub(super) fn with_retries<T>(
        &self,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> Result<T, Errno> {
        let backoff = RECONNECT_BACKOFF.with_timeout(self.options.timeout);
        let mut retries = backoff.start(&*self.options.system);
        loop {
            let error = match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // Repeating does not help against a refusal, except EAGAIN, or a protocol error.
            if let Some(errno) = refusal(&error)
                && errno != Errno::EAGAIN
            {
                if matches!(errno, Errno::EKEYREJECTED | Errno::EPROTO) {
                    tracing::error!(%error, address = %self.address, "connection refused");
                }
                return Err(errno);
            }
            let inner = error.get_ref();
            if inner.is_some_and(|e| e.is::<ServerNotAuthenticated>()) {
                tracing::error!(%error, address = %self.address,
                    "server failed authentication; not sending requests");
                return Err(Errno::ENOKEY);
            }
            if error.kind() == io::ErrorKind::InvalidData {
                tracing::error!(%error, address = %self.address,
                    "protocol error of storage daemon");
                return Err(Errno::EPROTO);
            }
            if !retries.wait() {
                tracing::error!(%error, address = %self.address,
                    "timeout: storage daemon unreachable");
                return Err(Errno::EIO);
            }
        }
    }

    /// Connects, attaches, and makes sure that the daemon knows the open handles.
    pub(crate) fn connect(&self, slot: u32, seq: u64, is_data: bool) -> io::Result<Connection> {
        let asked = self.options.system.now();
        let mut identity = self.identity.lock();
        if identity.is_evicted {
            return Err(io::Error::other(Errno::ESHUTDOWN));
        }
        // One attempt is enough for all that waited meanwhile.
        if identity.unanswered.is_some_and(|at| at > asked) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let attached = self.attach(&identity, slot, seq, is_data);
        if let Err(error) = &attached
            && matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
        {
            identity.unanswered = Some(self.options.system.now());
        }
        let (connection, token, epoch) = match attached {
            Err(error) if refusal(&error) == Some(Errno::ESHUTDOWN) => {
                tracing::error!(address = %self.address, instance = ?self.instance,
                    "an administrator has evicted this client: its requests fail");
                identity.is_evicted = true;
                return Err(error);
            }
            Err(error) if refusal(&error) == Some(Errno::ESTALE) && identity.token.is_some() => {
                // The session has expired. A new one opens the handles again, as far as possible.
                *identity = SessionIdentity::default();
                self.epoch.store(0, Ordering::Release);
                self.attach(&identity, slot, seq, is_data)?
            }
            other => other?,
        };
        identity.token = Some(token);
        if self.epoch() != epoch {
            self.suspend_write_leases();
            if !self.handles.lock().is_empty() {
                self.recover(&mut identity)?;
            }
            identity.boot_id = self.boot_id();
            self.epoch.store(epoch, Ordering::Release);
        }
        drop(identity);
        Ok(connection)
    }

    pub(super) fn attach(
        &self,
        identity: &SessionIdentity,
        slot: u32,
        seq: u64,
        is_data: bool,
    ) -> io::Result<(Connection, SessionToken, u64)> {
        let options = &self.options;
        let auth = Authenticator {
            key: options.key.clone(),
            munge: options.munge.clone(),
            data_protection: options.data_protection,
        };
        let system = &options.system;
        let mut connection = system.connect(&self.address, &auth, CONNECT_TIMEOUT)?;
        connection.set_timeout(Some(ATTACH_TIMEOUT.min(self.reply_timeout())))?;
        let attach = Attach {
            version: PROTOCOL_VERSION,
            instance: self.instance,
            token: identity.token,
            slot,
            data_connection: is_data,
            single_cache: self.caches.is_single(),
            cache_checks_permissions: self.caches == ReplyCaches::SingleWithPermissions,
            client: options.client.clone(),
            delegates: TrailingField(self.caches == ReplyCaches::SingleWithPermissions),
            client_number: TrailingField(self.client_number),
        };
        let call = Call::new(seq, SessionRequest::Attach(attach));
        let reply = connection.call(&call, &[], &mut [])?.reply;
        let Reply::Attached {
            token,
            epoch,
            placement,
            boot,
            takes_batches,
            keeps_write_leases,
            ..
        } = reply
        else {
            let refused = if let Reply::Failed(errno) = reply { errno } else { Errno::EPROTO };
            return Err(io::Error::other(refused));
        };
        let expected = self.expected_node;
        if expected.is_some_and(|node| node != placement.node) {
            tracing::error!(address = %self.address, ?expected, actual = ?placement.node,
                "attach refused: the storage daemon is another node of the instance; \
                 addresses must be in the order of the nodes");
            return Err(io::Error::other(Errno::EINVAL));
        }
        let _ = self.placement.set(placement);
        self.boot_id.store(boot, Ordering::Release);
        self.takes_batches.store(takes_batches.0, Ordering::Release);
        self.keeps_write_leases.store(keeps_write_leases.0, Ordering::Release);
        connection.set_timeout(Some(self.reply_timeout()))?;
        Ok((connection, token, epoch))
    }

    /// The daemon restarted and has lost its open handles and locks: opens and takes them again.
    fn recover(&self, identity: &mut SessionIdentity) -> io::Result<()> {
        let seq = identity.recovery_seq + 1;
        let (mut connection, _, _) = self.attach(identity, RECOVERY_SLOT, seq, false)?;
        // Permissions are checked when a file is opened first. A trusted client need not have them
        // any more.
        let caller = rustix::process::geteuid().is_root().then_some(Credentials {
            uid: 0,
            gid: 0,
            groups: Some(Vec::new()),
            checked: true,
        });
        let handles = self.handles.lock().clone();
        for (handle, OpenHandle { opened, mode: open, tags }) in handles {
            identity.recovery_seq += 1;
            let (ino, request) = match opened {
                OpenedBy::Ino(ino) => (ino, FileRequest::Open { ino, handle, open }),
                OpenedBy::Capability(capability) => {
                    (capability.ino, FileRequest::OpenObject { handle, capability, open })
                }
            };
            let caller = caller.clone();
            let call = Call { caller, tags, ..Call::new(identity.recovery_seq, request) };
            // If the capability has expired, the next use of the handle renews it.
            if let Reply::Failed(errno) = connection.call(&call, &[], &mut [])?.reply
                && errno != Errno::EKEYREJECTED
            {
                tracing::warn!(%errno, %ino, "recovery failed: cannot open a file again");
            }
        }
        // A new session has no boot id yet.
        let is_same = identity.boot_id == self.boot_id();
        self.claim_write_leases(&mut connection, &mut identity.recovery_seq, is_same)?;
        self.reclaim_locks(&mut connection, &mut identity.recovery_seq)
    }
}

/// The error number with which the daemon refused the connection or the request.
fn refusal(error: &io::Error) -> Option<Errno> {
    let inner = error.get_ref()?;
    let errno = inner.downcast_ref::<Errno>().copied();
    errno.or_else(|| inner.downcast_ref::<Refusal>().map(|refusal| refusal.errno))
}

/// Ends a session.
fn detach(mut connection: Connection, seq: u64) -> io::Result<()> {
    connection.set_timeout(Some(BYE_TIMEOUT))?;
    connection.call(&Call::new(seq, SessionRequest::Detach), &[], &mut [])?;
    Ok(())
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without this request the session would exist until its lease expires, and one that waits for
        // events until the process ends.
        let Some(Slot { number, seq, connection: Some(connection) }) = self.slots.take_idle()
        else {
            return;
        };
        let seq = seq + 1;
        let Err(error) = detach(connection, seq) else {
            return;
        };
        let hangs = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        if !hangs && self.locks.lock().is_watched {
            // The daemon restarted, or the connection broke.
            let attached = self.attach(&self.identity.lock(), number, seq, false);
            let _ = attached.and_then(|(connection, ..)| detach(connection, seq));
        }
    }
}
