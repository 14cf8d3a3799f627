//! Whether histories come to logs that are short of room, which is what full disks are about.

use forebay_store::log::LogSpace;
use std::sync::atomic::{AtomicU64, Ordering};

/// Inputs that came while a log had only what is in reserve, and while it had nothing.
static SHORT: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Take note of what a log has room for.
pub fn note_room(room: LogSpace) {
    match room {
        LogSpace::Normal => {}
        LogSpace::ReserveOnly => drop(SHORT[0].fetch_add(1, Ordering::Relaxed)),
        LogSpace::Exhausted => drop(SHORT[1].fetch_add(1, Ordering::Relaxed)),
    }
}

/// Unless somebody has chosen them, the histories that were run are so many that both occur.
pub fn assert_short() {
    let short = SHORT.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{short:?} inputs came while a log had no more than its reserve, and not even that");
    let chosen = ["FOREBAY_SEED", "FOREBAY_SEEDS"].map(std::env::var_os);
    let usual = chosen.iter().all(Option::is_none);
    assert!(!usual || (short[0] > 1000 && short[1] > 0), "{short:?}");
}
