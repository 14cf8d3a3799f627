//! A limit of how often each place in the code may log, so that nobody can fill a disk with logs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Events of one place that are logged after a pause, and per second after that.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: f64,
    per_second: f64,
}

/// Warnings and errors, which a user may be able to cause at will.
const PROBLEMS: Rate = Rate { burst: 50.0, per_second: 1.0 };
/// Reports of ordinary events, e.g. of 4,000 hosts that mount at once.
const REPORTS: Rate = Rate { burst: 10_000.0, per_second: 50.0 };

fn rate_of(level: Level) -> Option<Rate> {
    match level {
        Level::ERROR | Level::WARN => Some(PROBLEMS),
        Level::INFO => Some(REPORTS),
        _ => None,
    }
}

/// A token bucket, and the number of events it has refused since the last one it accepted.
#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
    suppressed: u64,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Bucket {
        Bucket { left: rate.burst, at: now, suppressed: 0 }
    }

    /// Whether an event may be logged, and how many were suppressed before it.
    fn accept(&mut self, rate: Rate, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * rate.per_second).min(rate.burst);
        self.at = now;
        if self.left < 1.0 {
            self.suppressed += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Suppresses events of places in the code that log too often, and logs their number later.
#[derive(Debug, Default)]
pub struct RateLimit {
    /// By place, of which a program has a fixed number. Events of the crate `log` have one place for
    /// each level.
    buckets: Mutex<HashMap<Identifier, Bucket>>,
}

impl RateLimit {
    fn accept(&self, metadata: &Metadata<'_>) -> Option<u64> {
        let Some(rate) = rate_of(*metadata.level()) else {
            return Some(0);
        };
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(metadata.callsite());
        bucket.or_insert_with(|| Bucket::full(rate, now)).accept(rate, now)
    }
}

impl<S: Subscriber> Layer<S> for RateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let Some(suppressed) = self.accept(metadata) else {
            return false;
        };
        if suppressed > 0 {
            tracing::warn!(
                suppressed,
                of = metadata.target(),
                "events like the next one were not logged"
            );
        }
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::time::Duration;
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn place_that_logs_too_often_does_not_fill_the_log_and_others_are_heard() {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log.with(RateLimit::default()), || {
            for _ in 0..20_000 {
                tracing::warn!("flood");
            }
            tracing::warn!("another place");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let flood = text.lines().filter(|line| line.contains("flood")).count();
        assert!((50..100).contains(&flood), "{flood} lines");
        assert!(text.contains("another place"));
    }

    #[test]
    fn events_are_logged_again_after_a_pause_and_the_suppressed_ones_are_counted() {
        let begun = Instant::now();
        let mut bucket = Bucket::full(PROBLEMS, begun);
        let accepted = (0..60).filter(|_| bucket.accept(PROBLEMS, begun).is_some());
        assert_eq!(accepted.count(), 50);
        let later = begun + Duration::from_secs(2);
        assert_eq!(bucket.accept(PROBLEMS, later), Some(10));
        assert_eq!(bucket.accept(PROBLEMS, later), Some(0));
        assert_eq!(bucket.accept(PROBLEMS, later), None);
    }
}
