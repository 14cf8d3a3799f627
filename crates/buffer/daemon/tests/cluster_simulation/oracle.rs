//! The true state of the system, for comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_control::messages::{FragmentId, InstanceId};

use crate::pfs::Pfs;
use crate::process::{Files, Losses, difference};

macro_rules! counts {
    ($($name:ident),* $(,)?) => {
        /// Number of occurrences of each fault and event.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(pub $name: u64,)*
        }

        impl Counts {
            pub fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    jobs, jobs_staged_out, refused_for_good, refused_full, refused_kept, hurried, persistent_uses,
    controller_crashes, node_crashes, power_cuts, host_crashes, disks_lost, messages_lost,
    messages_repeated, links_broken, isolations, failed_movers, pfs_crashes, pfs_away, processes,
    files_compared, drains, full_logs, lists, deferred, private_uses, replicas_read,
    nodes_gone, nodes_given_up, nodes_returned, short_logs, fences, pairs_cut, shares,
    evacuations, evacuated, batches, failed_write_backs,
}

/// A job's data.
#[derive(Clone, Debug, Default)]
pub struct ExpectedJob {
    /// Number of runs of the job.
    pub runs: u64,
    /// Whether a user has allowed that results are destroyed.
    pub hurried: bool,
    /// Directories that are staged out.
    pub outs: Vec<PathBuf>,
    /// Inputs: name in the instance, and contents.
    pub inputs: Vec<(PathBuf, Arc<Vec<u8>>)>,
    /// Files that its processes have written.
    pub files: Files,
    /// Files in its hosts' private directories.
    pub private: Files,
    /// Whether the contents of [`DEFERRED`] are to be staged out, as a process has requested.
    pub deferred: bool,
}

#[derive(Debug, Default)]
pub struct Oracle {
    pub counts: Counts,
    /// By token.
    pub jobs: BTreeMap<String, ExpectedJob>,
    /// Tokens of instances.
    pub labels: BTreeMap<InstanceId, String>,
    /// Current instances of tokens.
    pub current: BTreeMap<String, InstanceId>,
    /// Instances that were, or are, to replace others.
    pub replacements: BTreeSet<InstanceId>,
    /// Fragments that were ready: one that was replaced before never held data.
    pub used: BTreeSet<FragmentId>,
    /// Instances that have lost a disk.
    pub damaged: BTreeSet<InstanceId>,
    pub losses: Arc<Losses>,
}

/// The directory of results that the script does not name: the running job requests their stage.
pub const DEFERRED: &str = "striped/deferred";

/// The n-th directory of a job's results, in the instance.
pub fn out(line: u64) -> PathBuf {
    Path::new("striped").join(format!("out{line}"))
}

impl Oracle {
    /// Whether the instance of this token has lost a disk.
    pub fn is_damaged(&self, token: &str) -> bool {
        let current = self.current.get(token);
        current.is_some_and(|id| self.damaged.contains(id))
    }

    /// Checks that all results of a job are on the parallel file system's disks.
    pub fn check_results(&mut self, token: &str, pfs: &Pfs, when: &str) {
        if self.is_damaged(token) {
            return;
        }
        let Some(job) = self.jobs.get(token) else {
            return;
        };
        let power = self.losses.power.load(Ordering::Relaxed);
        for (path, known) in job.files.lock().unwrap().iter() {
            let Some(expected) = &known.data else {
                continue;
            };
            if !known.certain || (power && !known.synced) {
                continue;
            }
            if path.starts_with(DEFERRED) && !job.deferred {
                continue;
            }
            let inside = path.strip_prefix("striped").unwrap();
            let path = Path::new("/pfs").join(token).join(inside);
            let found = pfs.contents(&path, true);
            let found = found.unwrap_or_else(|| panic!("{}: lost {when}", path.display()));
            assert!(*found == *expected, "{when}: {}", difference(&path, &found, expected));
            self.counts.files_compared += 1;
        }
    }

    /// Checks, before a fragment is destroyed, that its results are safe or given up.
    pub fn destroyed(&mut self, fragment: FragmentId, instance: InstanceId, pfs: &Pfs) {
        let Some(token) = self.labels.get(&instance).cloned() else {
            return;
        };
        let Some(job) = self.jobs.get(&token) else {
            return;
        };
        let current = self.current.get(&token) == Some(&instance);
        if current
            && self.used.contains(&fragment)
            && job.runs > 0
            && !job.hurried
            && !job.outs.is_empty()
        {
            self.check_results(&token, pfs, "before its instance is destroyed");
        }
    }
}
