//! Histories by seed.

use forebay_protocol::PeerIdentity;

/// xorshift64* (Vigna 2016).
pub struct Random(u64);

impl Random {
    /// The sequence of a history.
    pub fn of(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Root, on the daemon's own host if `local`.
pub fn root(local: bool) -> PeerIdentity {
    PeerIdentity { uid: 0, gid: 0, groups: Vec::new(), trusted: true, local }
}

/// Run the history of seed `FOREBAY_SEED`, or `FOREBAY_SEEDS` histories (by default `usual`) from
/// `FOREBAY_FIRST_SEED` on.
pub fn run_all(usual: u64, run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let number = |variable| {
        let text = std::env::var(variable).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
    };
    if let Some(seed) = number("FOREBAY_SEED") {
        return run(seed);
    }
    let first = number("FOREBAY_FIRST_SEED").unwrap_or(1);
    for seed in first..first + number("FOREBAY_SEEDS").unwrap_or(usual) {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed} failed; run it alone with FOREBAY_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
