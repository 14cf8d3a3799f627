//! Resources of this process, under the names that Prometheus's own client libraries use.

use crate::Exposition;
use crate::MetricKind::{Counter, Gauge};
use std::fs;

/// Fields of `/proc/self/stat` after the name of the program, from zero: time in user and in system
/// mode, in clock ticks, and resident pages (`proc_pid_stat(5)`).
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const RESIDENT_PAGES: usize = 21;

impl Exposition {
    /// Adds memory, processor time and open files of this process, where `/proc` shows them.
    pub fn add_process(&mut self) {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some((seconds, bytes)) = time_and_memory(&stat) {
            self.begin_family(
                "process_resident_memory_bytes",
                Gauge,
                "Resident memory of the process.",
            )
            .integer_sample(&[], bytes);
            self.begin_family(
                "process_cpu_seconds_total",
                Counter,
                "Processor time of the process, of user and system.",
            )
            .float_sample(&[], seconds);
        }
        if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
            // One of them is that of the directory itself.
            let open = descriptors.count().saturating_sub(1);
            self.begin_family("process_open_fds", Gauge, "Open file descriptors of the process.")
                .integer_sample(&[], open as u64);
        }
    }
}

/// Processor time in seconds and resident memory in bytes, from the text of `/proc/self/stat`.
fn time_and_memory(stat: &str) -> Option<(f64, u64)> {
    // The name is in parentheses, and may contain some.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(USER_TIME)? + number(SYSTEM_TIME)?;
    let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    let bytes = number(RESIDENT_PAGES)?.saturating_mul(rustix::param::page_size() as u64);
    Some((seconds, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_the_name_of_the_program() {
        let stat =
            "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 4 0 100 5000 3 18446744073709551615";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let page = rustix::param::page_size() as u64;
        assert_eq!(time_and_memory(stat), Some((300.0 / ticks, 3 * page)));
        assert_eq!(time_and_memory("7 (a"), None);
    }

    #[test]
    fn process_has_memory_and_descriptors() {
        let mut page = Exposition::default();
        page.add_process();
        let text = page.into_text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes ") >= f64::from(1 << 20), "{text}");
        assert!(value("process_open_fds ") >= 3.0, "{text}");
        assert!(value("process_cpu_seconds_total ") >= 0.0, "{text}");
    }
}
