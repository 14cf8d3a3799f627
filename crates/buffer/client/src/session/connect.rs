//! Connections of a session: greeting the daemon, and telling it again what it has forgotten.

use super::{Reopen, Session, lock};
use crate::system::Connection;
use forebay_net::handshake::{Dialling, NotProved};
use forebay_protocol::message::{Attach, PROTOCOL_VERSION, RECOVERY_SLOT, SessionToken};
use forebay_protocol::message::{FileRequest, SessionRequest};
use forebay_protocol::{Call, Credentials, Errno, Reply, Request};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a daemon may take for each answer to a greeting.
const GREETING: Duration = Duration::from_secs(20);

/// How the daemon knows the session.
#[derive(Debug, Default)]
pub struct Identity {
    resume: Option<SessionToken>,
    recovery_seq: u64,
}

impl Session {
    /// Try until it works, is refused, or patience ends.
    pub(super) fn persist<T>(
        &self,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> Result<T, Errno> {
        let system = &self.options.system;
        let start = system.now();
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
            if error.get_ref().is_some_and(|e| e.is::<NotProved>()) {
                tracing::error!(%error, address = %self.address, "nothing is asked of whoever listens there");
                return Err(Errno::ENOKEY);
            }
            if error.kind() == io::ErrorKind::InvalidData {
                tracing::error!(%error, address = %self.address, "cannot talk to storage daemon");
                return Err(Errno::EPROTO);
            }
            if system.now() - start >= self.options.timeout {
                tracing::error!(%error, address = %self.address, "storage daemon does not answer");
                return Err(Errno::EIO);
            }
            system.sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Connect, say who we are, and make sure that the daemon knows our handles.
    pub(super) fn connect(&self, slot: u32, seq: u64, bulk: bool) -> io::Result<Connection> {
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
            link.set_timeout(Some(self.options.timeout))?;
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
    ) -> io::Result<(Connection, SessionToken, u64)> {
        let system = &self.options.system;
        let mut link = system.connect(&self.address, Duration::from_secs(5))?;
        // Whoever listens in a daemon's place may say nothing at all.
        link.set_timeout(Some(GREETING))?;
        let hello = Attach {
            version: PROTOCOL_VERSION,
            instance: self.instance,
            token: identity.resume,
            slot,
            data_connection: bulk,
            single_cache: self.caches,
        };
        let say = |request| Call {
            seq,
            caller: None,
            request,
        };
        link.send(
            &say(Request::Session(SessionRequest::Attach(hello.clone()))),
            &[],
        )?;
        let mut reply = link.receive(seq, &mut [])?.reply;
        if let Some(at) = link.remote_address()? {
            let nonce = match reply {
                Reply::Challenge { nonce } => nonce,
                Reply::Failed(errno) => return Err(io::Error::other(errno)),
                _ => return Err(io::Error::other(Errno::EPROTO)),
            };
            let (munge, key) = (self.options.munge.as_ref(), self.options.key.as_ref());
            let dialling = Dialling::new(munge, key, at, nonce)?;
            // The second greeting goes along: whoever listens in the daemon's place learns of the
            // session what is of use to the session's user only.
            link.send(&say(dialling.prove()?), &[])?;
            link.send(&say(Request::Session(SessionRequest::Attach(hello))), &[])?;
            dialling.check(&link.receive(seq, &mut [])?.reply)?;
            reply = link.receive(seq, &mut [])?.reply;
        }
        match reply {
            Reply::Failed(errno) => Err(io::Error::other(errno)),
            Reply::Attached {
                token: resume,
                epoch,
                placement: place,
                boot,
                ..
            } => {
                if self.node.is_some_and(|node| node != place.node) {
                    tracing::error!(address = %self.address, expected = ?self.node, is = ?place.node,
                        "the storage daemon at this address has another place in the instance: \
                         addresses must be in the order of the nodes");
                    return Err(io::Error::other(Errno::EINVAL));
                }
                let _ = self.place.set(place);
                self.boot.store(boot, Ordering::Release);
                link.set_timeout(None)?;
                Ok((link, resume, epoch))
            }
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
                Reopen::File(ino, open) => {
                    (ino, Request::File(FileRequest::Open { ino, handle, open }))
                }
                Reopen::Object(permit, open) => (
                    permit.ino,
                    Request::File(FileRequest::OpenObject {
                        handle,
                        capability: permit,
                        open,
                    }),
                ),
            };
            let call = Call {
                seq: identity.recovery_seq,
                caller: caller.clone(),
                request,
            };
            match link.call(&call, &[], &mut [])?.reply {
                // Who uses the handle next gets another permit.
                Reply::Failed(Errno::EKEYREJECTED) => {}
                Reply::Failed(errno) => {
                    tracing::warn!(%errno, %ino, "a file could not be opened again");
                }
                _ => {}
            }
        }
        self.reclaim_locks(&mut link, &mut identity.recovery_seq)
    }
}

fn refused_with(error: &io::Error, errno: Errno) -> bool {
    error
        .get_ref()
        .and_then(|e| e.downcast_ref::<Errno>())
        .is_some_and(|e| *e == errno)
}
