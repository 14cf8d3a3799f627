//! Memory of the daemons, which must not grow from round to round.

use std::collections::BTreeMap;
use std::fs;

/// Rounds after which growth is judged. Pools of threads, buffers and freed memory reach their size in
/// the first ones. (Settled in view: without faults, storage daemons grew to 210 MiB in 20 rounds and no
/// further.)
const JUDGED_ROUNDS: usize = 30;
/// Memory that no daemon may have at any time, in KiB.
const MAX_KIB: u64 = 768 << 10;
/// Growth of the median from the second third of the rounds to the last that is allowed: a twentieth,
/// and this, in KiB.
const ALLOWANCE_KIB: u64 = 4 << 10;

/// Resident memory after each round, in KiB, by role: the largest of its daemons.
#[derive(Debug, Default)]
pub struct MemoryUse {
    rounds: Vec<BTreeMap<&'static str, u64>>,
}

impl MemoryUse {
    /// Notes the memory of daemons, of which the role and the process are given.
    pub fn sample(&mut self, daemons: &[(&'static str, u32)]) {
        let mut round = BTreeMap::new();
        for (role, process) in daemons {
            let largest = round.entry(*role).or_default();
            *largest = resident_kib(*process).max(*largest);
        }
        self.rounds.push(round);
    }

    /// The memory after the last round.
    pub fn last(&self) -> BTreeMap<&'static str, u64> {
        self.rounds.last().cloned().unwrap_or_default()
    }

    /// The median of a role's memory in a range of the rounds, given in thirds.
    fn median(&self, role: &str, third: usize) -> u64 {
        let count = self.rounds.len();
        let rounds = &self.rounds[count * third / 3..count * (third + 1) / 3];
        let mut memory: Vec<u64> =
            rounds.iter().filter_map(|round| round.get(role).copied()).collect();
        memory.sort_unstable();
        memory.get(memory.len() / 2).copied().unwrap_or(0)
    }

    /// The limit of the median of the last third of the rounds: a little above that of the second.
    fn limit(&self, role: &str) -> u64 {
        let second = self.median(role, 1);
        second + second / 20 + ALLOWANCE_KIB
    }

    /// Asserts that no daemon has too much memory, and that none has grown.
    pub fn check(&self) {
        for (number, round) in self.rounds.iter().enumerate() {
            for (role, memory) in round {
                assert!(*memory <= MAX_KIB, "round {}: {role} has {memory} KiB", number + 1);
            }
        }
        if self.rounds.len() < JUDGED_ROUNDS {
            return;
        }
        for role in self.last().keys() {
            let (second, last) = (self.median(role, 1), self.median(role, 2));
            assert!(
                last <= self.limit(role),
                "{role} grew from {second} to {last} KiB, the medians of the second and the last \
                 third of {} rounds",
                self.rounds.len()
            );
        }
    }

    /// Prints a row for each role: the medians of the three thirds, and the limit of the last.
    pub fn print(&self) {
        for role in self.last().keys() {
            let [first, second, third] = [0, 1, 2].map(|third| self.median(role, third));
            eprintln!("{role:<22} {first:>8} {second:>8} {third:>8} {:>8}", self.limit(role));
        }
    }
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
