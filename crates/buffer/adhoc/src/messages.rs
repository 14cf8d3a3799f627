//! Messages between the leader and the nodes, over the launcher's standard input and output: one
//! JSON document in a line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Beginning of a node's lines, which other output of a launcher does not have.
pub const NODE_PREFIX: &str = "forebay-node ";

/// Longest line that a node or the leader reads, in bytes.
pub const MAX_LINE: u64 = 4 << 20;

/// A message to a node. An empty line only shows that the leader is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToNode {
    /// The first message.
    Start(Start),
    /// Start the daemons, with this configuration.
    Run {
        /// The text of the file.
        configuration: String,
    },
    /// From now on there is data that must be staged out.
    Keep,
    /// End.
    End {
        /// Remove the directory with all data.
        remove: bool,
    },
}

/// The first message to a node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The name of the instance, of its directories, too.
    pub id: String,
    /// The secret that hosts authenticate each other with, as hexadecimal digits.
    pub key: String,
    /// The local directory in which the node makes its own.
    pub local: PathBuf,
    /// Addresses of the leader, of which at least one should be reachable; none if all addresses
    /// are known from before.
    pub leader: Vec<SocketAddr>,
    /// The state in which the node's directory should be.
    pub begin: Begin,
    /// Whether there is data that must be staged out.
    pub keep: bool,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The state of a node's directory when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Begin {
    /// There is none.
    New,
    /// It is that of an earlier process.
    Resume,
    /// It is removed, and the node ends.
    Discard,
}

/// A message of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromNode {
    /// Its directory is there.
    Prepared(Prepared),
    /// Its daemons run.
    Running,
    /// It cannot do what was asked, and ends.
    Failed(String),
    /// It ends.
    Ended {
        /// Whether its directory stays.
        kept: bool,
    },
}

/// A node whose directory is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The addresses of the leader that it has reached, each with its own address towards it.
    pub routes: Vec<(SocketAddr, IpAddr)>,
    /// The port kept free for its storage daemon.
    pub port: u16,
    /// Free bytes of the local directory's file system.
    pub free: u64,
    /// Directories that an earlier instance has left there, with data that waits for its stage-out.
    pub kept: Vec<PathBuf>,
}

impl FromNode {
    /// The message in a line of a launcher's output, if there is one.
    pub fn parse(line: &str) -> Option<FromNode> {
        // A launcher may label the lines.
        let (_, message) = line.split_once(NODE_PREFIX)?;
        serde_json::from_str(message).ok()
    }

    /// The line without its end.
    pub fn to_line(&self) -> String {
        // Has no map with keys other than strings, so that it can be represented.
        format!("{NODE_PREFIX}{}", serde_json::to_string(self).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_of_a_node_is_found_after_a_label_and_other_lines_are_not() {
        let message = FromNode::Ended { kept: true };
        assert_eq!(FromNode::parse(&format!("3: {}", message.to_line())), Some(message));
        assert_eq!(FromNode::parse("Welcome to n3"), None);
        assert_eq!(FromNode::parse("forebay-node {"), None);
    }

    #[test]
    fn key_is_not_shown_for_debugging() {
        let start = Start {
            id: "a".into(),
            key: "secret".into(),
            local: "/l".into(),
            leader: Vec::new(),
            begin: Begin::New,
            keep: false,
        };
        assert!(!format!("{:?}", ToNode::Start(start)).contains("secret"));
    }
}
