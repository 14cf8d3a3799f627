//! Connections of a session: attaching, and recovery after a restart of the daemon.

use super::{Reopen, Session, lock};
use crate::system::Connection;
use forebay_net::auth::Authenticator;
use forebay_net::handshake::{Refusal, ServerNotAuthenticated};
use forebay_protocol::message::{
    Attach, FileRequest, PROTOCOL_VERSION, RECOVERY_SLOT, SessionRequest, SessionToken,
};
use forebay_protocol::{Call, Credentials, Errno, Reply, Request};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time for a TCP connection to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for each reply while attaching.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay after a failed attempt to connect: the first, and the maximum.
const CONNECT_BACKOFF: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(100));

/// What identifies the session to the daemon.
#[derive(Debug, Default)]
pub struct Identity {
    token: Option<SessionToken>,
    recovery_seq: u64,
}

impl Session {
    /// Retries `attempt` until it succeeds, is refused, or the session's timeout has passed.
    pub(super) fn persist<T>(
        &self,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> Result<T, Errno> {
        let system = &self.options.system;
        let start = system.now();
        let (mut backoff, max_backoff) = CONNECT_BACKOFF;
        loop {
            let error = match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let address = &self.address;
            // An error of the daemon or of its protocol is permanent, except for EAGAIN.
            if let Some(errno) = refusal(&error)
                && errno != Errno::EAGAIN
            {
                if errno == Errno::EKEYREJECTED {
                    tracing::error!(%error, %address, "storage daemon refused the connection");
                }
                return Err(errno);
            }
            if error
                .get_ref()
                .is_some_and(|e| e.is::<ServerNotAuthenticated>())
            {
                tracing::error!(%error, %address, "not sending requests");
                return Err(Errno::ENOKEY);
            }
            if error.kind() == io::ErrorKind::InvalidData {
                tracing::error!(%error, %address, "storage daemon violates the protocol");
                return Err(Errno::EPROTO);
            }
            if system.now() - start >= self.options.timeout {
                tracing::error!(%error, %address, "timeout: storage daemon unreachable");
                return Err(Errno::EIO);
            }
            system.sleep(backoff);
            backoff = (backoff * 2).min(max_backoff);
        }
    }

    /// Connects, attaches, and makes sure that the daemon knows the session's handles.
    pub(super) fn connect(
        &self,
        slot: u32,
        seq: u64,
        data_connection: bool,
    ) -> io::Result<Connection> {
        let mut identity = lock(&self.identity);
        let attached = match self.attach(&identity, slot, seq, data_connection) {
            Err(error) if refusal(&error) == Some(Errno::ESTALE) && identity.token.is_some() => {
                // The session has expired. Its successor opens what can still be opened.
                *identity = Identity::default();
                self.epoch.store(0, Ordering::Release);
                self.attach(&identity, slot, seq, data_connection)
            }
            other => other,
        };
        let (connection, token, epoch) = attached?;
        identity.token = Some(token);
        if self.epoch() != epoch {
            if !lock(&self.handles).is_empty() {
                self.reopen(&mut identity)?;
            }
            self.epoch.store(epoch, Ordering::Release);
        }
        drop(identity);
        if data_connection {
            connection.set_timeout(Some(self.options.timeout))?;
        }
        // Metadata calls have no timeout: a sync may take long, and the kernel closes the connection
        // of a daemon that dies.
        Ok(connection)
    }

    fn attach(
        &self,
        identity: &Identity,
        slot: u32,
        seq: u64,
        data_connection: bool,
    ) -> io::Result<(Connection, SessionToken, u64)> {
        let options = &self.options;
        let auth = Authenticator {
            key: options.key.clone(),
            munge: options.munge.clone(),
        };
        let mut connection = options
            .system
            .connect(&self.address, &auth, CONNECT_TIMEOUT)?;
        connection.set_timeout(Some(ATTACH_TIMEOUT))?;
        let attach = Attach {
            version: PROTOCOL_VERSION,
            instance: self.instance,
            token: identity.token,
            slot,
            data_connection,
            single_cache: self.caches,
        };
        let call = Call {
            seq,
            caller: None,
            request: Request::Session(SessionRequest::Attach(attach)),
        };
        match connection.call(&call, &[], &mut [])?.reply {
            Reply::Failed(errno) => Err(io::Error::other(errno)),
            Reply::Attached {
                token,
                epoch,
                placement,
                boot,
                ..
            } => {
                if self.node.is_some_and(|node| node != placement.node) {
                    tracing::error!(address = %self.address, expected = ?self.node, found = ?placement.node,
                        "the storage daemon at this address has another node index in the instance: \
                         addresses must be in the order of the nodes");
                    return Err(io::Error::other(Errno::EINVAL));
                }
                let _ = self.place.set(placement);
                self.boot.store(boot, Ordering::Release);
                connection.set_timeout(None)?;
                Ok((connection, token, epoch))
            }
            _ => Err(io::Error::other(Errno::EPROTO)),
        }
    }

    /// Opens all handles again after a restart of the daemon.
    fn reopen(&self, identity: &mut Identity) -> io::Result<()> {
        let (mut connection, _, _) =
            self.attach(identity, RECOVERY_SLOT, identity.recovery_seq + 1, false)?;
        // Rights were checked when the file was opened first; the daemon accepts that from trusted
        // clients.
        let own = rustix::process::geteuid().as_raw();
        let caller = (own == 0).then_some(Credentials {
            uid: 0,
            gid: 0,
            groups: Some(Vec::new()),
            checked: true,
        });
        let handles = lock(&self.handles).clone();
        for (handle, what) in handles {
            identity.recovery_seq += 1;
            let (ino, request) = match what {
                Reopen::File(ino, open) => (ino, FileRequest::Open { ino, handle, open }),
                Reopen::Object(capability, open) => (
                    capability.ino,
                    FileRequest::OpenObject {
                        handle,
                        capability,
                        open,
                    },
                ),
            };
            let call = Call {
                seq: identity.recovery_seq,
                caller: caller.clone(),
                request: Request::File(request),
            };
            match connection.call(&call, &[], &mut [])?.reply {
                // The next user of the handle renews the capability.
                Reply::Failed(Errno::EKEYREJECTED) => {}
                Reply::Failed(errno) => {
                    tracing::warn!(%errno, %ino, "cannot reopen a file after a restart of the daemon");
                }
                _ => {}
            }
        }
        self.reclaim_locks(&mut connection, &mut identity.recovery_seq)
    }
}

/// The error number with which the daemon refused the connection or the request.
fn refusal(error: &io::Error) -> Option<Errno> {
    let inner = error.get_ref()?;
    let errno = inner.downcast_ref::<Errno>().copied();
    errno.or_else(|| inner.downcast_ref::<Refusal>().map(|refusal| refusal.errno))
}
