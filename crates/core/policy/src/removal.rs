//! When an instance may be removed.

use std::fmt;

/// What still depends on an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Whether clients may have written to it since it was set up or last staged out.
    pub written: bool,
    /// Stage-outs asked for and not done: waiting, running or failed.
    pub unfinished_outs: u32,
    /// Of these, the ones that failed.
    pub failed_outs: u32,
    /// Other sessions that use it (of a persistent instance).
    pub other_sessions: u32,
    /// Client hosts that have it mounted.
    pub mounts: u32,
}

/// Why an instance is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
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

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::InUse { sessions } => {
                write!(
                    f,
                    "{sessions} other session(s) use the instance; end them first"
                )
            }
            Keep::DataWaiting { unfinished, failed } => write!(
                f,
                "{unfinished} stage-out(s) are not done ({failed} failed); stage out again, or \
                 give `hurry` to destroy the data"
            ),
        }
    }
}

impl std::error::Error for Keep {}

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
pub fn may_remove(uses: &Uses, hurry: bool) -> Result<Removal, Keep> {
    if uses.other_sessions > 0 {
        return Err(Keep::InUse {
            sessions: uses.other_sessions,
        });
    }
    if uses.unfinished_outs > 0 && uses.written && !hurry {
        return Err(Keep::DataWaiting {
            unfinished: uses.unfinished_outs,
            failed: uses.failed_outs,
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
        let uses = Uses {
            written: true,
            unfinished_outs: 2,
            failed_outs: 1,
            ..Uses::default()
        };
        assert_eq!(
            may_remove(&uses, false),
            Err(Keep::DataWaiting {
                unfinished: 2,
                failed: 1
            })
        );
        assert_eq!(may_remove(&uses, true), Ok(Removal::Now));
        let unwritten = Uses {
            written: false,
            ..uses
        };
        assert_eq!(may_remove(&unwritten, false), Ok(Removal::Now));
    }

    #[test]
    fn hurry_does_not_take_an_instance_from_others() {
        let uses = Uses {
            other_sessions: 1,
            ..Uses::default()
        };
        assert_eq!(may_remove(&uses, true), Err(Keep::InUse { sessions: 1 }));
    }

    #[test]
    fn mounts_go_before_data() {
        let uses = Uses {
            mounts: 1,
            ..Uses::default()
        };
        assert_eq!(may_remove(&uses, false), Ok(Removal::UnmountFirst));
    }
}
