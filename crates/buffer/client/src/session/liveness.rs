//! Waiting for replies that may take long, and noticing that the daemon does not reply at all.

use super::Session;
use crate::system::Connection;
use forebay_protocol::message::PROBE_SLOT;
use std::io;
use std::time::{Duration, Instant};

/// Time without a reply after which the daemon is asked whether it works.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Least time for a reply.
const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Questions whether the daemon replies.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Number of the last one.
    seq: u64,
    /// Time of the last one, if the daemon answered.
    answered: Option<Instant>,
    /// Time at which the daemon last had left one unanswered.
    failed: Option<Instant>,
}

impl Session {
    /// Time within which a working daemon replies to a request, unless that may take long.
    pub(super) fn reply_timeout(&self) -> Duration {
        self.options.timeout.max(MIN_REPLY_TIMEOUT)
    }

    /// Waits for the reply to a call that may take any time, as long as the daemon answers others.
    /// Fails with `TimedOut` if it has not done so for the timeout of the session.
    pub(super) fn await_slow_reply(&self, connection: &Connection) -> io::Result<()> {
        self.wait_while_responding(|interval| Ok(connection.await_input(interval)?.then_some(())))
    }

    /// Repeats `wait`, which waits for at most the time that it is given, until it has a result. Fails
    /// with `TimedOut` if the daemon has not replied to anything for the timeout of the session.
    pub(super) fn wait_while_responding<T>(
        &self,
        mut wait: impl FnMut(Duration) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let interval = PROBE_INTERVAL.min(self.reply_timeout());
        let mut silent_since = Instant::now();
        loop {
            if let Some(result) = wait(interval)? {
                return Ok(result);
            }
            if self.is_responding(interval) {
                silent_since = Instant::now();
            } else if silent_since.elapsed() >= self.reply_timeout() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Whether the daemon has replied to this session within `interval`, or does so now.
    fn is_responding(&self, interval: Duration) -> bool {
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < interval);
        if is_recent(*self.last_contact.lock()) {
            return true;
        }
        // The calls that wait at the same time ask once.
        let begun = Instant::now();
        let mut probe = self.probe.lock();
        if is_recent(probe.answered) {
            return true;
        }
        if probe.failed.is_some_and(|at| at >= begun) {
            return false;
        }
        probe.seq += 1;
        let asked = Instant::now();
        // The daemon replies to the request that attaches the connection.
        let answered = self.connect(PROBE_SLOT, probe.seq, false).is_ok();
        if answered {
            probe.answered = Some(asked);
        } else {
            probe.failed = Some(Instant::now());
            tracing::warn!(address = %self.address, "the storage daemon does not reply");
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use crate::session::{ClientOptions, ReplyCaches, Session};
    use crate::system::{Channel, Connection, System};
    use forebay_net::auth::Authenticator;
    use forebay_net::connection::Response;
    use forebay_protocol::address::Address;
    use forebay_protocol::message::{AdminRequest, SessionRequest, SessionToken, TrailingField};
    use forebay_protocol::placement::Placement;
    use forebay_protocol::{Call, InstanceId, Reply, Request, SessionId};
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    /// A daemon that replies to a scrub only when it is permitted to.
    #[derive(Debug, Default)]
    struct Daemon {
        replies_to_scrubs: AtomicBool,
    }

    #[derive(Debug)]
    struct ToDaemon(Arc<Daemon>, Option<Request>);

    impl Channel for ToDaemon {
        fn send(&mut self, call: &Call, _payload: &[u8]) -> io::Result<()> {
            self.1 = Some(call.request.clone());
            Ok(())
        }

        fn receive(&mut self, _seq: u64, _into: &mut [u8]) -> io::Result<Response> {
            let reply = match self.1.take() {
                Some(Request::Session(SessionRequest::Attach(_))) => Reply::Attached {
                    token: SessionToken { session: SessionId(1), secret: 1 },
                    boot: 1,
                    epoch: 1,
                    capacity: 0,
                    placement: Placement::single_node(),
                    takes_batches: TrailingField(false),
                    keeps_write_leases: TrailingField(false),
                },
                _ => Reply::Done,
            };
            Ok(Response { reply, payload: 0, descriptor: None, cacheable: false })
        }

        fn await_input(&self, timeout: Duration) -> io::Result<bool> {
            let deadline = Instant::now() + timeout;
            while !self.0.replies_to_scrubs.load(Ordering::Acquire) {
                if Instant::now() >= deadline {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(true)
        }

        fn set_timeout(&self, _timeout: Option<Duration>) -> io::Result<()> {
            Ok(())
        }
    }

    /// The way to the daemon.
    #[derive(Debug)]
    struct Network(Arc<Daemon>);

    impl System for Network {
        fn connect(
            &self,
            _address: &Address,
            _auth: &Authenticator,
            _timeout: Duration,
        ) -> io::Result<Connection> {
            Ok(Box::new(ToDaemon(self.0.clone(), None)))
        }
    }

    #[test]
    fn calls_wait_for_a_connection_while_slow_calls_have_all() {
        let daemon = Arc::<Daemon>::default();
        let options = ClientOptions {
            timeout: super::MIN_REPLY_TIMEOUT,
            connections: 1,
            system: Arc::new(Network(daemon.clone())),
            ..ClientOptions::default()
        };
        let address = Address::Unix("/daemon".into());
        let session =
            Session::open(address, None, None, options, ReplyCaches::None, Arc::default(), 0)
                .unwrap();
        let call = |id| session.call::<()>(AdminRequest::ScrubInstance { id: InstanceId(id) });
        std::thread::scope(|scope| {
            let slow = scope.spawn(move || call(1));
            while let Some(idle) = session.slots.take_idle() {
                session.slots.release(idle);
                std::thread::sleep(Duration::from_millis(1));
            }
            let other = scope.spawn(move || call(2));
            let dispensable = session.call_best_effort(AdminRequest::ListInstances);
            assert!(dispensable.is_none(), "does not wait for the others");
            std::thread::sleep(super::MIN_REPLY_TIMEOUT + Duration::from_secs(1));
            assert!(!other.is_finished(), "waits as long as the daemon answers probes");
            daemon.replies_to_scrubs.store(true, Ordering::Release);
            assert_eq!(slow.join().unwrap(), Ok(()));
            assert_eq!(other.join().unwrap(), Ok(()));
        });
    }
}
