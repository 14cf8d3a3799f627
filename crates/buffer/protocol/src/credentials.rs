//! Identity and groups of the user that an operation is done for.

use crate::ids::Errno;
use serde::{Deserialize, Serialize};

/// The user that an operation is done for. In a request, only a connection of root or of the
/// daemon's own user may set them; for every other one they are the peer's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups. `None`: the sender can look them up, and is to be asked only if the
    /// outcome depends on them. Such a request then does nothing and fails with
    /// [`Errno::EGROUPS`].
    pub groups: Option<Vec<u32>>,
    /// The sender has already checked permission bits and owners (a mount whose kernel does).
    pub checked: bool,
}

impl Credentials {
    /// Whether permission bits and owners do not matter.
    pub fn is_privileged(&self) -> bool {
        self.uid == 0 || self.checked
    }

    /// Whether the user is a member of `gid`; `EGROUPS` if that is not known.
    pub fn in_group(&self, gid: u32) -> Result<bool, Errno> {
        match &self.groups {
            _ if self.gid == gid => Ok(true),
            Some(groups) => Ok(groups.contains(&gid)),
            None => Err(Errno::EGROUPS),
        }
    }
}
