//! Timeouts, limits and policies of a controller.

use forebay_job_script::Direction;
use serde::Deserialize;

/// Milliseconds in a day.
const DAY_MS: u64 = 86_400_000;

/// Timeouts, limits and policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A peer without a report for this long is offline.
    pub offline_after_ms: u64,
    /// A command without an effect is repeated after this long.
    pub retry_interval_ms: u64,
    /// A compute node without a report for this long has lost its mounts.
    pub host_dead_after_ms: u64,
    /// Timeout of a request other than for staging.
    pub request_timeout_ms: u64,
    /// Timeout of a request for staging.
    pub staging_timeout_ms: u64,
    /// The reply to a request is kept for this long.
    pub reply_retention_ms: u64,
    /// Limit on the stages that one storage node moves at a time.
    pub max_stages_per_node: usize,
    /// Limit on the storage nodes that share one stage; 1: none is shared.
    pub max_nodes_per_stage: usize,
    /// Directory below which sessions are mounted; without a trailing `/`.
    pub mount_root: String,
    /// User with the operator's rights, besides root.
    pub operator: u32,
    /// Limit on the number of sessions.
    pub max_sessions: usize,
    /// Limit on the sessions of one user other than root and the operator.
    pub max_user_sessions: usize,
    /// Limit on the stored set-ups and stages of the sessions of one such user, in bytes.
    pub max_user_session_bytes: u64,
    /// Limit on those of all sessions, in bytes.
    pub max_session_bytes: u64,
    /// Limit on the requests of one such user that wait.
    pub max_user_waiting_requests: usize,
    /// Refused or failed requests of one user that are remembered, so that they are not carried out
    /// when they are repeated.
    pub max_kept_refusals: usize,
    /// Requests of one user that succeeded and are remembered.
    pub max_kept_replies: usize,
    /// Limit on the stages of one session.
    pub max_stages: usize,
    /// Limit on the remembered stages of a persistent instance; the oldest ended ones are dropped.
    pub max_kept_stages: usize,
    /// Longest lifetime of persistent instances of users, and that of those for which none is
    /// requested; `None`: they do not expire.
    pub persistent_lifetime_ms: Option<u64>,
    /// Time before the expiry of a persistent instance at which it is announced.
    pub persistent_warning_ms: u64,
    /// Time after the expiry of a persistent instance before which it is not removed.
    pub persistent_grace_ms: u64,
    /// Ended jobs and persistent instances whose statistics are kept.
    pub max_kept_usage: usize,
    /// Limit on the storage nodes of an instance.
    pub max_nodes: u32,
    /// Stripe size of instances on several nodes, in bytes.
    pub stripe_bytes: u64,
    /// Key from which the secrets of instances on several nodes are derived: random, and the same
    /// whenever the controller is restored.
    pub secret: [u8; 32],
    /// Directories of the parallel file system that stages must not leave; empty for no limit.
    pub pfs_roots: Vec<String>,
    /// Stages that are read back and compared.
    pub read_back: ReadBack,
    /// Whether this process does all mounts, so that a job that was mounted before its start cannot
    /// be running.
    pub single_process: bool,
}

/// Stages that are read back from storage after the copy, and compared with what was read at the
/// source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadBack {
    /// No stage; checksums are computed and recorded while copying.
    None,
    /// Stage-outs: the originals of their copies are destroyed afterwards.
    #[default]
    Out,
    /// All stages.
    All,
}

impl ReadBack {
    /// Whether stages of a direction are read back.
    pub fn applies_to(self, direction: Direction) -> bool {
        match self {
            ReadBack::None => false,
            ReadBack::Out => direction == Direction::Out,
            ReadBack::All => true,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            offline_after_ms: 10_000,
            retry_interval_ms: 1_000,
            host_dead_after_ms: 60_000,
            // The timeouts of Slurm's plugin: 300 s, and a day for staging.
            request_timeout_ms: 300_000,
            staging_timeout_ms: 86_400_000,
            reply_retention_ms: 3_600_000,
            max_stages_per_node: 4,
            max_nodes_per_stage: 8,
            mount_root: "/var/opt/cray/dws/mounts/batch".to_owned(),
            operator: 0,
            max_sessions: 65_536,
            max_user_sessions: 4096,
            max_user_session_bytes: 64 << 20,
            max_session_bytes: 1 << 30,
            max_user_waiting_requests: 16_384,
            max_kept_refusals: 4096,
            max_kept_replies: 65_536,
            max_stages: 65_536,
            max_kept_stages: 1024,
            persistent_lifetime_ms: None,
            persistent_warning_ms: 7 * DAY_MS,
            persistent_grace_ms: 7 * DAY_MS,
            max_kept_usage: 10_000,
            max_nodes: u32::from(forebay_protocol::placement::MAX_NODES),
            stripe_bytes: 8 << 20,
            secret: [0; 32],
            pfs_roots: Vec::new(),
            read_back: ReadBack::default(),
            single_process: false,
        }
    }
}
