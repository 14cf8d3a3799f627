//! When an instance may be removed.

use std::fmt;

/// What still depends on an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceUses {
    /// Whether clients may have written to it since it was set up or last staged out.
    pub written: bool,
    /// Stage-outs asked for and not done: waiting, running or failed.
    pub unfinished_stage_outs: u32,
    /// Of these, the ones that failed.
    pub failed_stage_outs: u32,
    /// Other sessions that use it (of a persistent instance).
    pub other_sessions: u32,
    /// Client hosts that have it mounted.
    pub mounts: u32,
}

/// Why an instance is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalRefused {
    /// Other sessions use it; nothing overrides that.
    InUse {
        /// How many.
        sessions: u32,
    },
    /// Results in it are not staged out; only an explicit `hurry` overrides that.
    DataWaiting {
        /// Stage-outs not done.
        unfinished: u32,
        /// Of these, failed.
        failed: u32,
    },
}

impl fmt::Display for RemovalRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemovalRefused::InUse { sessions } => {
                write!(
                    f,
                    "{sessions} other session(s) use the instance; end them first"
                )
            }
            RemovalRefused::DataWaiting { unfinished, failed } => write!(
                f,
                "{unfinished} stage-out(s) are not done ({failed} failed); stage out again, or \
                 give `hurry` to destroy the data"
            ),
        }
    }
}

impl std::error::Error for RemovalRefused {}

/// What has to be done so that an instance can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Take its mounts away first, then remove it.
    UnmountFirst,
    /// Remove it.
    Now,
}

/// Whether an instance may be removed. Data that waits for its stage-out is destroyed only if
/// someone says `hurry`; data that was never written to needs no stage-out.
pub fn check_removal(uses: &InstanceUses, hurry: bool) -> Result<Removal, RemovalRefused> {
    if uses.other_sessions > 0 {
        return Err(RemovalRefused::InUse {
            sessions: uses.other_sessions,
        });
    }
    if uses.unfinished_stage_outs > 0 && uses.written && !hurry {
        return Err(RemovalRefused::DataWaiting {
            unfinished: uses.unfinished_stage_outs,
            failed: uses.failed_stage_outs,
        });
    }
    Ok(if uses.mounts > 0 {
        Removal::UnmountFirst
    } else {
        Removal::Now
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_results_are_kept_unless_told() {
        let uses = InstanceUses {
            written: true,
            unfinished_stage_outs: 2,
            failed_stage_outs: 1,
            ..InstanceUses::default()
        };
        assert_eq!(
            check_removal(&uses, false),
            Err(RemovalRefused::DataWaiting {
                unfinished: 2,
                failed: 1
            })
        );
        assert_eq!(check_removal(&uses, true), Ok(Removal::Now));
        let unwritten = InstanceUses {
            written: false,
            ..uses
        };
        assert_eq!(check_removal(&unwritten, false), Ok(Removal::Now));
    }

    #[test]
    fn hurry_does_not_take_an_instance_from_others() {
        let uses = InstanceUses {
            other_sessions: 1,
            ..InstanceUses::default()
        };
        assert_eq!(
            check_removal(&uses, true),
            Err(RemovalRefused::InUse { sessions: 1 })
        );
    }

    #[test]
    fn mounts_go_before_data() {
        let uses = InstanceUses {
            mounts: 1,
            ..InstanceUses::default()
        };
        assert_eq!(check_removal(&uses, false), Ok(Removal::UnmountFirst));
    }
}
