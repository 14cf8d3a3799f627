//! Histories by seed: what both simulations begin with.

use forebay_wire::auth::Peer;

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

/// Root on the daemon's own host.
pub fn root() -> Peer {
    Peer {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        trusted: true,
        local: true,
    }
}

/// Run the history that `FOREBAY_SEED` names, or as many as `FOREBAY_SEEDS` says, else `usual`.
pub fn run_all(usual: u64, run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    if let Ok(seed) = std::env::var("FOREBAY_SEED") {
        return run(seed.parse().expect("FOREBAY_SEED is a number"));
    }
    let count = std::env::var("FOREBAY_SEEDS").map_or(usual, |n| n.parse().expect("a number"));
    for seed in 1..=count {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("this was seed {seed}; run it alone with FOREBAY_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
