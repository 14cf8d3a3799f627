//! Versions of the control protocol, and the one that two sides have in common.

use forebay_control::controller::{Cause, Failure, Request};

use crate::messages::{Hello, OLDEST_VERSION, Query, VERSION};

/// Refuses what needs version `needed` of a controller that speaks version `spoken`.
pub(crate) fn check_version(needed: u16, spoken: u16) -> Result<(), Failure> {
    if needed <= spoken {
        return Ok(());
    }
    let reason = format!(
        "the controller or the agent of this host speaks version {spoken} of the control \
         protocol, and this request needs version {needed}; upgrade the controller and the agent of this host"
    );
    Err(Failure::new(Cause::Invalid, reason))
}

/// The oldest version that has a request. An older controller cannot decode it, or ignores part of it.
pub(crate) fn version_of(request: &Request) -> u16 {
    match request {
        Request::EvictSessions { .. } | Request::ExtendPersistent { .. } => 10,
        // An older controller would drain the node and move nothing.
        Request::DrainNode { evacuate: true, .. } => 11,
        Request::CreatePersistent { spec, .. } if spec.lifetime_ms.is_some() => 10,
        _ => OLDEST_VERSION,
    }
}

/// The oldest version that has a query.
pub(crate) fn version_of_query(query: &Query) -> u16 {
    match query {
        Query::JobUsage(_) => 10,
        _ => OLDEST_VERSION,
    }
}

/// The query to send to a controller that speaks version `spoken` in place of another one, whose reply
/// is a part of that reply.
pub(crate) fn query_for(query: Query, spoken: u16) -> Query {
    match query {
        Query::ControlStatus | Query::JobStatus(_) if spoken < 11 => Query::Status,
        other => other,
    }
}

/// The versions that a side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionRange {
    pub oldest: u16,
    pub newest: u16,
}

/// The side that accepts connections, in messages: a controller, or an agent that relays to it.
pub(crate) const DAEMON: &str = "the daemon";
/// The side that connects, in messages: a daemon of another host, or a command.
pub(crate) const CONNECTING: &str = "the program that connects";

/// The versions of this release.
pub(crate) const OWN: VersionRange = VersionRange { oldest: OLDEST_VERSION, newest: VERSION };

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "version {}", self.newest),
            false => write!(f, "versions {} to {}", self.oldest, self.newest),
        }
    }
}

impl VersionRange {
    /// The versions that a peer offers.
    pub fn of(hello: &Hello) -> VersionRange {
        VersionRange { oldest: hello.version, newest: hello.newest.unwrap_or(hello.version) }
    }

    /// The newest version that both sides speak. The error names the versions of both. It may be
    /// printed at either end, so `own` and `other` name the sides for all readers.
    pub fn agree(self, own: &str, peer: VersionRange, other: &str) -> Result<u16, String> {
        let newest = self.newest.min(peer.newest);
        if newest >= self.oldest.max(peer.oldest) {
            return Ok(newest);
        }
        let older = if peer.newest < self.oldest { other } else { own };
        Err(format!(
            "version mismatch: {other} speaks {peer} of the control protocol, {own} {self}; \
             upgrade {older}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(oldest: u16, newest: u16) -> VersionRange {
        VersionRange { oldest, newest }
    }

    fn agree(own: VersionRange, peer: VersionRange) -> Result<u16, String> {
        own.agree(DAEMON, peer, CONNECTING)
    }

    #[test]
    fn documentation_has_the_versions_of_both_protocols() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/upgrade.md");
        let text = std::fs::read_to_string(path).unwrap();
        for (name, version) in [
            ("control protocol", VERSION),
            ("storage protocol", forebay_protocol::message::PROTOCOL_VERSION),
        ] {
            let mut lines = text.lines();
            let row = lines.find(|line| line.starts_with(&format!("| {name}:"))).unwrap();
            assert_eq!(row.split('|').nth(2).unwrap().trim(), version.to_string(), "{name}");
        }
    }

    #[test]
    fn adjacent_releases_speak_the_newest_version_of_the_older_one() {
        assert_eq!(agree(range(9, 10), range(9, 9)), Ok(9));
        assert_eq!(agree(range(9, 9), range(9, 10)), Ok(9));
        assert_eq!(agree(range(9, 10), range(10, 11)), Ok(10));
        assert_eq!(agree(range(9, 11), range(9, 11)), Ok(11));
    }

    #[test]
    fn refusal_names_the_versions_of_both_and_the_older_side() {
        let refused = agree(range(10, 11), range(9, 9)).unwrap_err();
        for part in [
            "the program that connects speaks version 9 of",
            "the daemon versions 10 to 11",
            "upgrade the program that connects",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
        let refused = agree(range(9, 9), range(10, 11)).unwrap_err();
        assert!(refused.contains("upgrade the daemon"), "{refused}");
    }

    #[test]
    fn request_that_an_older_controller_does_not_know_needs_a_newer_version() {
        let evict = Request::EvictSessions { sessions: "1".to_owned() };
        let refused = check_version(version_of(&evict), 9).unwrap_err();
        assert!(refused.reason.contains("upgrade the controller"), "{refused}");
        assert_eq!(check_version(version_of(&evict), 10), Ok(()));
        assert_eq!(check_version(version_of(&Request::AcceptRestored), OLDEST_VERSION), Ok(()));
    }

    #[test]
    fn older_controller_is_queried_for_the_whole_status() {
        for query in [Query::ControlStatus, Query::JobStatus("7".into())] {
            assert_eq!(query_for(query.clone(), 10), Query::Status);
            assert_eq!(query_for(query.clone(), 11), query);
        }
        assert_eq!(query_for(Query::Job("7".into()), 9), Query::Job("7".into()));
    }

    proptest::proptest! {
        #[test]
        fn both_sides_agree_on_the_same_version_or_none(a: u16, b: u16, c: u16, d: u16) {
            let (one, other) = (range(a.min(b), a.max(b)), range(c.min(d), c.max(d)));
            let (left, right) = (agree(one, other), agree(other, one));
            proptest::prop_assert_eq!(left.clone().ok(), right.ok());
            if let Ok(version) = left {
                for side in [one, other] {
                    proptest::prop_assert!((side.oldest..=side.newest).contains(&version));
                }
            }
        }

        /// An invalid range, whose oldest version is the newer one, is refused without panic.
        #[test]
        fn any_hello_is_answered(oldest: u16, newest: Option<u16>) {
            let role = crate::messages::Role::Client(None);
            let peer = VersionRange::of(&Hello { version: oldest, newest, role });
            if let Ok(version) = agree(OWN, peer) {
                proptest::prop_assert!((OWN.oldest..=OWN.newest).contains(&version));
            }
        }
    }
}
