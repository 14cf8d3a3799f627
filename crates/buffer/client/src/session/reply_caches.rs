//! Caches of replies, as a client names them when it attaches.

/// The caches of the replies to a session's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyCaches {
    /// None that outlives a request.
    None,
    /// One for all users of the session, which shows every name to all of them.
    Single,
    /// As `Single`, but a user may follow a name only if the user may search its directory.
    SingleWithPermissions,
}

impl ReplyCaches {
    /// Whether there is one for all users.
    pub fn is_single(self) -> bool {
        self != ReplyCaches::None
    }
}
