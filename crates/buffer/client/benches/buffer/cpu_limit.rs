//! A limit of the processor time of a process, by a control group of Linux.

use crate::Outcome;
use std::fs;
use std::path::{Path, PathBuf};

/// Time in which the limited part of a processor can be used, in microseconds.
const PERIOD_US: u64 = 10_000;

/// Limits a process while it exists. The process must have ended before it is dropped.
pub struct CpuLimit {
    group: PathBuf,
}

impl CpuLimit {
    /// Limits the process `pid`, which has no other limit, to `percent` of one processor. Needs root.
    pub fn of_process(pid: u32, percent: u64) -> Outcome<CpuLimit> {
        let name = format!("forebay-bench-{pid}");
        let first = Path::new("/sys/fs/cgroup/cpu");
        let second = Path::new("/sys/fs/cgroup");
        let quota = PERIOD_US * percent / 100;
        if first.join("cpu.cfs_quota_us").exists() {
            let limit = CpuLimit::make(first.join(name))?;
            limit.write("cpu.cfs_period_us", PERIOD_US)?;
            limit.write("cpu.cfs_quota_us", quota)?;
            limit.write("cgroup.procs", pid)?;
            Ok(limit)
        } else {
            fs::write(second.join("cgroup.subtree_control"), "+cpu")
                .map_err(|error| format!("no control group for processors: {error}"))?;
            let limit = CpuLimit::make(second.join(name))?;
            limit.write("cpu.max", format!("{quota} {PERIOD_US}"))?;
            limit.write("cgroup.procs", pid)?;
            Ok(limit)
        }
    }

    fn make(group: PathBuf) -> Outcome<CpuLimit> {
        fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        Ok(CpuLimit { group })
    }

    fn write(&self, file: &str, value: impl ToString) -> Outcome<()> {
        let file = self.group.join(file);
        fs::write(&file, value.to_string())
            .map_err(|error| format!("{}: {error}", file.display()).into())
    }
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}
