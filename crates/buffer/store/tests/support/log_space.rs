//! Counts of inputs while logs are short of space. They show that histories test full disks.

use forebay_store::log::LogSpace;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inputs while a log had only its reserve, and while it had no space.
static SHORT: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Count an input by the space that the log has.
pub fn note_log_space(space: LogSpace) {
    match space {
        LogSpace::Normal => {}
        LogSpace::ReserveOnly => drop(SHORT[0].fetch_add(1, Ordering::Relaxed)),
        LogSpace::Exhausted => drop(SHORT[1].fetch_add(1, Ordering::Relaxed)),
    }
}

/// Unless the histories were chosen, there are so many that both occur.
pub fn assert_logs_were_short() {
    let short = SHORT.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{short:?} inputs while a log had only its reserve, and no space");
    let chosen = ["FOREBAY_SEED", "FOREBAY_SEEDS"].map(std::env::var_os);
    let is_usual = chosen.iter().all(Option::is_none);
    assert!(!is_usual || (short[0] > 1000 && short[1] > 0), "{short:?}");
}
