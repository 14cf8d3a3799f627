//! Instances that lie on several storage nodes: where, and who may open what there.

use crate::ids::{Errno, Ino, InstanceId, Node, Timestamp};
use crate::layout::Layout;
use serde::{Deserialize, Serialize};

/// Most nodes an instance may lie on.
pub const MAX_NODES: u16 = 1024;
/// How long a [`Permit`] holds, in seconds.
pub const PERMIT_TIME: i64 = 3600;

/// Where an instance lies, as one of its nodes sees it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// This node's place among them.
    pub node: Node,
    /// Number of nodes, at most [`MAX_NODES`].
    pub nodes: u16,
    /// Length of a stripe in bytes; a multiple of [`BLOCK`](crate::layout::BLOCK).
    pub stripe: u64,
    /// Known to the instance's nodes only; the same on all of them, and random.
    pub secret: [u8; 32],
    /// Addresses of all nodes in the order of their places, as [`Address`](crate::address::Address)
    /// writes them. Empty for one node.
    pub peers: Vec<String>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("node", &self.node)
            .field("nodes", &self.nodes)
            .field("stripe", &self.stripe)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::alone()
    }
}

impl Place {
    /// On one node: every file is one data object.
    pub fn alone() -> Place {
        Place {
            node: Node(0),
            nodes: 1,
            stripe: 1 << 20,
            secret: [0; 32],
            peers: Vec::new(),
        }
    }

    /// The places of all nodes of a new instance, with a secret from the kernel's random source.
    pub fn spread(stripe: u64, peers: &[String]) -> std::io::Result<Vec<Place>> {
        let mut secret = [0; 32];
        crate::random::random(&mut secret)?;
        let nodes = u16::try_from(peers.len()).unwrap_or(u16::MAX);
        let place = |node| Place {
            node: Node(node),
            nodes,
            stripe,
            secret,
            peers: peers.to_vec(),
        };
        Ok((0..nodes).map(place).collect())
    }

    /// Does it lie on several nodes?
    pub fn is_spread(&self) -> bool {
        self.nodes > 1
    }

    /// How files are spread. A place that [`check`](Place::check) refuses has the layout of one
    /// node.
    pub fn layout(&self) -> Layout {
        Layout::new(self.nodes, self.stripe).unwrap_or(Layout::ALONE)
    }

    /// `EINVAL` unless the numbers go together.
    pub fn check(&self) -> Result<(), Errno> {
        let spread = self.nodes > 1;
        let good = (1..=MAX_NODES).contains(&self.nodes)
            && self.node.0 < self.nodes
            && self.stripe > 0
            && self.stripe.is_multiple_of(crate::layout::BLOCK)
            && self.stripe <= 1 << 40
            && (!spread || self.peers.len() == usize::from(self.nodes));
        if good { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// What others may know of it.
    pub fn without_secret(&self) -> Place {
        Place {
            secret: [0; 32],
            ..self.clone()
        }
    }
}

/// What a file's home gives to who has opened it: with it the file's data objects on other nodes
/// can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permit {
    /// The file.
    pub ino: Ino,
    /// Reading is allowed.
    pub read: bool,
    /// Writing is allowed.
    pub write: bool,
    /// Until when, in seconds since 1970 on the clocks of the nodes.
    pub until: i64,
    /// Made with [`Place::secret`].
    pub mac: [u8; 32],
}

impl Permit {
    /// A permit of an instance with this secret.
    pub fn new(
        secret: &[u8; 32],
        instance: InstanceId,
        ino: Ino,
        read: bool,
        write: bool,
        until: i64,
    ) -> Permit {
        let mut permit = Permit {
            ino,
            read,
            write,
            until,
            mac: [0; 32],
        };
        permit.mac = *permit.hash(secret, instance).as_bytes();
        permit
    }

    /// `EACCES` unless it was made with this secret, `EKEYREJECTED` if it has expired.
    pub fn check(&self, secret: &[u8; 32], instance: InstanceId, now: i64) -> Result<(), Errno> {
        if self.hash(secret, instance) != blake3::Hash::from_bytes(self.mac) {
            return Err(Errno::EACCES);
        }
        if now > self.until {
            return Err(Errno::EKEYREJECTED);
        }
        Ok(())
    }

    fn hash(&self, secret: &[u8; 32], instance: InstanceId) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher
            .update(b"forebay permit 1")
            .update(&instance.0.to_le_bytes())
            .update(&self.ino.0.to_le_bytes())
            .update(&[u8::from(self.read), u8::from(self.write)])
            .update(&self.until.to_le_bytes());
        hasher.finalize()
    }
}

/// What a data object says about its part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Length in bytes.
    pub size: u64,
    /// Space it takes, in bytes.
    pub space: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last write.
    pub mtime: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_fits_one_file_one_mode_one_instance_and_its_time() {
        let secret = [7; 32];
        let permit = Permit::new(&secret, InstanceId(1), Ino(5), true, false, 100);
        assert_eq!(permit.check(&secret, InstanceId(1), 100), Ok(()));
        assert_eq!(
            permit.check(&secret, InstanceId(1), 101),
            Err(Errno::EKEYREJECTED)
        );
        let forged = [
            Permit {
                write: true,
                ..permit
            },
            Permit {
                ino: Ino(6),
                ..permit
            },
            Permit {
                until: 1000,
                ..permit
            },
            Permit {
                mac: [0; 32],
                ..permit
            },
        ];
        for forged in forged {
            assert_eq!(forged.check(&secret, InstanceId(1), 50), Err(Errno::EACCES));
        }
        assert_eq!(permit.check(&secret, InstanceId(2), 50), Err(Errno::EACCES));
        assert_eq!(
            permit.check(&[8; 32], InstanceId(1), 50),
            Err(Errno::EACCES)
        );
    }

    #[test]
    fn a_place_must_be_among_its_nodes() {
        let peers = ["a".to_owned(), "b".to_owned()];
        let places = Place::spread(1 << 16, &peers).unwrap();
        assert_eq!(places.len(), 2);
        assert!(places.iter().all(|place| place.check().is_ok()));
        let bad = Place {
            node: Node(2),
            ..places[0].clone()
        };
        assert!(bad.check().is_err());
        let bad = Place {
            peers: Vec::new(),
            ..places[0].clone()
        };
        assert!(bad.check().is_err());
        assert!(Place::alone().check().is_ok());
    }
}
