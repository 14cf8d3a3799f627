//! Memory of the daemons, which must not grow from round to round.

use std::collections::BTreeMap;
use std::fs;

/// Rounds whose maximum later ones are compared with. Pools of threads, buffers and freed memory reach
/// their size in them. (Settled in view: without faults, storage daemons grew to 210 MiB in 20 rounds
/// and no further.)
const FIRST_ROUNDS: usize = 20;
/// Memory that no daemon may have at any time, in KiB.
const MAX_KIB: u64 = 768 << 10;
/// Growth that is allowed beyond a quarter of the first rounds' maximum, in KiB.
const ALLOWANCE_KIB: u64 = 16 << 10;

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

    /// The first rounds' maximum and the limit of later ones.
    fn limit(&self, role: &str) -> (u64, u64) {
        let first = self.rounds.iter().take(FIRST_ROUNDS);
        let first = first.filter_map(|round| round.get(role).copied()).max().unwrap_or(0);
        (first, (first + first / 4 + ALLOWANCE_KIB).min(MAX_KIB))
    }

    /// Asserts that no daemon has more memory than those of the first rounds allow.
    pub fn check(&self) {
        for (number, round) in self.rounds.iter().enumerate() {
            for (role, memory) in round {
                let (_, limit) = self.limit(role);
                assert!(*memory <= limit, "round {}: {role} has {memory} KiB", number + 1);
            }
        }
    }

    /// Prints a row for each role.
    pub fn print(&self) {
        for (role, memory) in self.last() {
            let (first, limit) = self.limit(role);
            eprintln!("{role:<22} {first:>8} {memory:>7} {limit:>7}");
        }
    }
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
