//! Conditions for the removal of an instance.

/// Uses of an instance that may prevent its removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceUses {
    /// Clients may have written to it since it was set up or last staged out.
    pub written: bool,
    /// Requested stage-outs that are not done: waiting, running or failed.
    pub unfinished_stage_outs: u32,
    /// Failed ones among them.
    pub failed_stage_outs: u32,
    /// Other sessions that use it (of a persistent instance).
    pub other_sessions: u32,
}

/// The reason to keep an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemovalRefused {
    /// Other sessions use it; `hurry` does not override this.
    #[error("{sessions} other session(s) use the instance; end them first")]
    InUse {
        /// Number of other sessions.
        sessions: u32,
    },
    /// Its results are not staged out; only `hurry` overrides this.
    #[error("{unfinished} stage-out(s) are not done ({failed} failed)")]
    DataPending {
        /// Stage-outs that are not done.
        unfinished: u32,
        /// Failed ones among them.
        failed: u32,
    },
}

/// Checks that an instance may be removed. Data with a pending stage-out are destroyed only with
/// `hurry`; an instance that was never written to needs no stage-out.
///
/// # Errors
/// The reason to keep the instance.
pub fn check_removal(uses: &InstanceUses, hurry: bool) -> Result<(), RemovalRefused> {
    debug_assert!(uses.failed_stage_outs <= uses.unfinished_stage_outs);
    if uses.other_sessions > 0 {
        return Err(RemovalRefused::InUse { sessions: uses.other_sessions });
    }
    if uses.unfinished_stage_outs > 0 && uses.written && !hurry {
        return Err(RemovalRefused::DataPending {
            unfinished: uses.unfinished_stage_outs,
            failed: uses.failed_stage_outs,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_stage_out_of_written_data_needs_hurry() {
        let uses = InstanceUses {
            written: true,
            unfinished_stage_outs: 2,
            failed_stage_outs: 1,
            ..InstanceUses::default()
        };
        assert_eq!(
            check_removal(&uses, false),
            Err(RemovalRefused::DataPending { unfinished: 2, failed: 1 })
        );
        assert_eq!(check_removal(&uses, true), Ok(()));
        let unwritten = InstanceUses { written: false, ..uses };
        assert_eq!(check_removal(&unwritten, false), Ok(()));
    }

    #[test]
    fn instance_in_use_by_other_sessions_is_kept_despite_hurry() {
        let uses = InstanceUses { other_sessions: 1, ..InstanceUses::default() };
        assert_eq!(check_removal(&uses, true), Err(RemovalRefused::InUse { sessions: 1 }));
    }
}
