//! Processors of the daemons and of the clients.

use crate::Outcome;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Leaves the first processor to the daemons: restricts the calling thread, and the processes that it
/// starts from then on, to all others. Returns the number of the first one.
pub fn leave_one_to_daemons() -> Outcome<usize> {
    let mut others = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|number| others.is_set(*number));
    let first = first.ok_or("no processor")?;
    others.unset(first);
    if others.count() == 0 {
        return Err("--server-core needs two processors".into());
    }
    sched_setaffinity(None, &others)?;
    Ok(first)
}

/// Restricts the calling thread, and those that it starts from then on, to one processor.
pub fn use_only(number: usize) -> Outcome<()> {
    let mut only = CpuSet::new();
    only.set(number);
    Ok(sched_setaffinity(None, &only)?)
}
