//! Token buckets: the rate at which something may be used, and the same for each user, so that no user takes
//! the share of others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Users at which full buckets are dropped for the first time.
const MIN_SWEEP: usize = 1024;

/// A rate, and its exceptions in the short run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Units per second in the long run; positive.
    pub per_second: f64,
    /// Units that may be used at once after idle time.
    pub burst: f64,
    /// Longest delay. A user with so much in flight that others would have to wait longer exceeds the
    /// rate instead, because clients take a request without a reply for a failure of the daemon.
    pub longest_delay: Duration,
}

/// A token bucket.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// Negative while requests are delayed.
    left: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: Rate, now: Instant) -> TokenBucket {
        assert!(rate.per_second > 0.0 && rate.burst >= 0.0, "a rate is positive");
        TokenBucket { rate, left: rate.burst, at: now }
    }

    fn refill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * self.rate.per_second).min(self.rate.burst);
        self.at = self.at.max(now);
    }

    /// Takes `cost` units. Returns the time for which their use is to be delayed.
    pub fn take(&mut self, cost: f64, now: Instant) -> Duration {
        self.refill(now);
        let Rate { per_second, longest_delay, .. } = self.rate;
        let lowest = -per_second * longest_delay.as_secs_f64();
        self.left = (self.left - cost).max(lowest);
        let delay = Duration::try_from_secs_f64(-self.left / per_second);
        delay.unwrap_or_default().min(longest_delay)
    }

    fn give_back(&mut self, units: f64) {
        self.left = (self.left + units).min(self.rate.burst);
    }
}

/// A bucket for each user who has used something lately.
#[derive(Debug)]
pub struct UserRates {
    rate: Rate,
    buckets: HashMap<u32, TokenBucket>,
    /// Number of buckets at which full ones are dropped.
    sweep_at: usize,
}

impl UserRates {
    /// All buckets are full.
    pub fn new(rate: Rate) -> UserRates {
        assert!(rate.per_second > 0.0 && rate.burst >= 0.0, "a rate is positive");
        UserRates { rate, buckets: HashMap::new(), sweep_at: MIN_SWEEP }
    }

    /// Takes `cost` units for a user. Returns the time for which the user's request is to be delayed.
    pub fn take(&mut self, uid: u32, cost: f64, now: Instant) -> Duration {
        let rate = self.rate;
        if self.buckets.len() >= self.sweep_at {
            self.buckets.retain(|_, bucket| {
                bucket.refill(now);
                bucket.left < rate.burst
            });
            self.sweep_at = MIN_SWEEP.max(2 * self.buckets.len());
        }
        self.buckets.entry(uid).or_insert_with(|| TokenBucket::new(rate, now)).take(cost, now)
    }

    /// Gives units back that a user has taken and not used.
    pub fn give_back(&mut self, uid: u32, units: f64) {
        if let Some(bucket) = self.buckets.get_mut(&uid) {
            bucket.give_back(units);
        }
    }

    /// The number of buckets in memory.
    pub fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Whether no user has used anything lately.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate =
        Rate { per_second: 10.0, burst: 20.0, longest_delay: Duration::from_secs(3) };

    #[test]
    fn user_is_delayed_beyond_the_burst_and_others_are_not() {
        let start = Instant::now();
        let mut rates = UserRates::new(RATE);
        let delays: Vec<u128> = (0..22).map(|_| rates.take(7, 1.0, start).as_millis()).collect();
        assert_eq!(delays[19..], [0, 100, 200]);
        assert_eq!(rates.take(8, 20.0, start), Duration::ZERO);
        // In the long run the rate holds: each request waits for those before it.
        let later = start + Duration::from_secs(1);
        assert_eq!(rates.take(7, 8.0, later), Duration::ZERO);
        assert_eq!(rates.take(7, 5.0, later).as_millis(), 500);
        rates.give_back(7, 5.0);
        assert_eq!(rates.take(7, 1.0, later).as_millis(), 100);
        // Idle time fills the bucket, and no more.
        let idle = later + Duration::from_secs(3600);
        assert_eq!(rates.take(7, 20.0, idle), Duration::ZERO);
        assert_eq!(rates.take(7, 1.0, idle).as_millis(), 100);
    }

    #[test]
    fn delays_are_limited_and_what_exceeds_them_is_not_paid_later() {
        let start = Instant::now();
        let mut rates = UserRates::new(RATE);
        for _ in 0..100 {
            assert!(rates.take(7, 10.0, start) <= RATE.longest_delay);
        }
        assert_eq!(rates.take(7, 10.0, start), RATE.longest_delay);
        let later = start + RATE.longest_delay + Duration::from_secs(2);
        assert_eq!(rates.take(7, 20.0, later), Duration::ZERO);
    }

    #[test]
    fn memory_is_that_of_users_with_requests_lately() {
        let mut now = Instant::now();
        let mut rates = UserRates::new(RATE);
        for uid in 0..100_000 {
            now += Duration::from_millis(1);
            rates.take(uid, 1.0, now);
            assert!(rates.len() <= MIN_SWEEP, "{} buckets", rates.len());
        }
    }
}
