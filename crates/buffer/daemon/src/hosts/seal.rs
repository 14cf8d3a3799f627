//! Seals: after the greeting, every message between hosts carries a keyed hash, so that nobody on
//! the network between them can change, add, repeat or leave out one.
//!
//! The two sides agree on keys by X25519: what each sends as its random bytes is a public key, made
//! for this connection, and what each proves by MUNGE or by the pool's key covers both. So whoever
//! is in between cannot put keys of its own there. Messages can still be read on the way.

use std::io;

use forebay_net::handshake::Opening;
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

/// Bytes of a seal.
pub const SEAL: usize = 32;

/// One side's secret, for one connection.
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one.
    pub fn new() -> io::Result<Secret> {
        forebay_protocol::random::random_nonce().map(Secret)
    }

    /// What the other side is told.
    pub fn public(&self) -> [u8; 32] {
        x25519(self.0, X25519_BASEPOINT_BYTES)
    }

    /// What seals the messages up and down on the connection that began like this. `theirs` is the
    /// other side's public key, one of those in `opening`.
    pub fn agree(self, theirs: [u8; 32], opening: &Opening) -> io::Result<Seals> {
        let shared = x25519(self.0, theirs);
        if shared == [0; 32] {
            let reason = "the other side's public key is none";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let text = [&shared[..], &opening.text()].concat();
        let key = |context| Seal {
            key: blake3::derive_key(context, &text),
            count: 0,
        };
        Ok(Seals {
            up: key("forebay control messages up 1"),
            down: key("forebay control messages down 1"),
        })
    }
}

/// Seals of both directions.
pub struct Seals {
    /// To the controller.
    pub up: Seal,
    /// From it.
    pub down: Seal,
}

/// What seals the messages of one direction, in their order.
pub struct Seal {
    key: [u8; 32],
    count: u64,
}

impl Seal {
    /// The seal of the next message.
    pub fn next(&mut self, head: &[u8], body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher
            .update(&self.count.to_le_bytes())
            .update(head)
            .update(body);
        self.count += 1;
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_net::handshake::Daemon;

    fn opening(client: &Secret, daemon: &Secret) -> Opening {
        Opening {
            with: Daemon::Controller,
            client: client.public(),
            daemon: daemon.public(),
            at: "10.0.0.1:7510".parse().unwrap(),
        }
    }

    #[test]
    fn both_sides_agree_and_nobody_else() {
        let (client, daemon, third) = (
            Secret::new().unwrap(),
            Secret::new().unwrap(),
            Secret::new().unwrap(),
        );
        let began = opening(&client, &daemon);
        let between = third.agree(began.client, &began).unwrap();
        let mut near = client.agree(began.daemon, &began).unwrap();
        let mut far = daemon.agree(began.client, &began).unwrap();
        let seal = near.up.next(b"head", b"body");
        assert_eq!(seal, far.up.next(b"head", b"body"));
        let second = far.up.next(b"head", b"body");
        assert_ne!(seal, second, "the same message again");
        assert_ne!(seal, far.down.next(b"head", b"body"));
        let mut between = between;
        assert_ne!(seal, between.up.next(b"head", b"body"));
    }

    #[test]
    fn a_key_that_gives_nothing_away_is_refused() {
        let (client, daemon) = (Secret::new().unwrap(), Secret::new().unwrap());
        let began = opening(&client, &daemon);
        assert!(client.agree([0; 32], &began).is_err());
    }
}
