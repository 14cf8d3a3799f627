//! How a TCP connection to a storage daemon begins: both sides prove who they are.
//!
//! ```text
//! client                               daemon
//! Hello                            ->
//!                                  <-  Challenge {nonce}
//! Prove {proof, nonce}, Hello      ->
//!                                  <-  Proved(proof), Welcome
//! ```
//!
//! Each side's proof is over both nonces, so neither can be replayed, and over the address at which
//! the client believes to have found the daemon and the daemon to have been found: who listens in
//! one daemon's place cannot pass on what another one answers. The daemon's proof names the client
//! it is for, so it is of no use to another one. The two are of different kinds
//! ([`challenge`]'s context), so neither is of use as the other.
//!
//! An address that is translated on the way (NAT, a forwarded port) therefore does not work.

use crate::auth::{self, PoolKey, challenge};
use crate::munge::{DecodedCredential, Munge};
use forebay_protocol::identity::{PeerIdentity, Proof};
use forebay_protocol::message::SessionRequest;
use forebay_protocol::{Errno, Reply, Request};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The kinds of daemon that are spoken with over TCP. Proofs to and of one are of no use to or as
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// A storage daemon.
    Storage,
    /// A pool's controller.
    Controller,
}

impl Daemon {
    /// Contexts of its clients' proofs and of its own.
    fn contexts(self) -> [&'static str; 2] {
        match self {
            Daemon::Storage => [
                "forebay storage daemon's client 2",
                "forebay storage daemon 2",
            ],
            Daemon::Controller => ["forebay controller's client 2", "forebay controller 2"],
        }
    }
}

/// What both sides of a new connection have said before they prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// What the daemon is.
    pub with: Daemon,
    /// The daemon's random bytes.
    pub daemon: [u8; 32],
    /// The client's random bytes.
    pub client: [u8; 32],
    /// Where the daemon is: the client's end knows where it has connected to, the daemon's end at
    /// which of its addresses it has been found.
    pub at: SocketAddr,
}

/// The other side has not proved to be who it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotProved(String);

impl fmt::Display for NotProved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotProved {}

impl Opening {
    /// All of it, as bytes.
    pub fn text(&self) -> Vec<u8> {
        let ip = match self.at.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        [
            &self.daemon[..],
            &self.client,
            &ip.octets(),
            &self.at.port().to_le_bytes(),
        ]
        .concat()
    }

    /// What the client's proof answers.
    pub fn of_client(&self) -> [u8; 32] {
        let [context, _] = self.with.contexts();
        challenge(context, &self.text())
    }

    /// What the daemon's proof to a client of this user and group answers.
    pub fn of_daemon(&self, uid: u32, gid: u32) -> [u8; 32] {
        let mut text = self.text();
        text.extend_from_slice(&uid.to_le_bytes());
        text.extend_from_slice(&gid.to_le_bytes());
        let [_, context] = self.with.contexts();
        challenge(context, &text)
    }

    /// Whom a key's proof makes the client, and the daemon's own proof to it.
    pub fn believe_key(
        &self,
        key: &PoolKey,
        proof: &Proof,
    ) -> Result<(PeerIdentity, Proof), Errno> {
        let peer = auth::proof_peer(key, proof, &self.of_client())?;
        let own = key.answer(&self.of_daemon(peer.uid, peer.gid));
        Ok((peer, own))
    }

    /// Whom a MUNGE credential makes the client.
    pub fn believe_munge(&self, credential: &DecodedCredential) -> Result<PeerIdentity, Errno> {
        auth::credential_peer(credential, &self.of_client())
    }

    /// The daemon's own proof, for a client that has proved by MUNGE who it is.
    pub fn answer_munge(&self, munge: &Munge, peer: &PeerIdentity) -> io::Result<Proof> {
        let challenge = self.of_daemon(peer.uid, peer.gid);
        auth::answer(Some(munge), None, &challenge)
    }
}

/// A client's end of an opening.
#[derive(Debug)]
pub struct Dialling<'a> {
    munge: Option<&'a Munge>,
    key: Option<&'a PoolKey>,
    opening: Opening,
}

impl<'a> Dialling<'a> {
    /// A daemon at this address has answered with a challenge. The client proves itself by MUNGE,
    /// if that is given, or else by the pool's key.
    pub fn new(
        munge: Option<&'a Munge>,
        key: Option<&'a PoolKey>,
        at: SocketAddr,
        challenge: [u8; 32],
    ) -> io::Result<Dialling<'a>> {
        let opening = Opening {
            with: Daemon::Storage,
            daemon: challenge,
            client: forebay_protocol::random::random_nonce()?,
            at,
        };
        Ok(Dialling {
            munge,
            key,
            opening,
        })
    }

    /// What proves to the daemon who this process is.
    pub fn prove(&self) -> io::Result<Request> {
        let proof = auth::answer(self.munge, self.key, &self.opening.of_client())?;
        Ok(Request::Session(SessionRequest::Prove {
            proof,
            nonce: self.opening.client,
        }))
    }

    /// Whether the answer to [`prove`](Dialling::prove) proves that this is a daemon of the pool's.
    /// A daemon's refusal comes back as an [`Errno`] in the error.
    pub fn check(&self, answer: &Reply) -> io::Result<()> {
        let proof = match answer {
            Reply::Proved(proof) => proof,
            Reply::Failed(errno) => return Err(io::Error::other(*errno)),
            _ => return Err(not_proved("it gave no proof")),
        };
        let own = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let challenge = self.opening.of_daemon(own.0, own.1);
        let peer = match (proof, self.munge, self.key) {
            (Proof::Munge(credential), Some(munge), _) => {
                let credential = munge.decode(credential);
                let credential = credential.map_err(|error| not_proved(error.to_string()))?;
                auth::credential_peer(&credential, &challenge)
            }
            (Proof::Key { .. }, _, Some(key)) => auth::proof_peer(key, proof, &challenge),
            (Proof::Munge(_), None, _) => return Err(not_proved("it uses MUNGE, this side a key")),
            (Proof::Key { .. }, _, None) => {
                return Err(not_proved("it uses a key, this side MUNGE"));
            }
        };
        match peer {
            Ok(peer) if peer.trusted => Ok(()),
            Ok(peer) => Err(not_proved(format!(
                "it runs as user {}, who is neither root nor this process's user",
                peer.uid
            ))),
            Err(_) => Err(not_proved("its proof is not valid")),
        }
    }
}

fn not_proved(reason: impl Into<String>) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        NotProved(format!(
            "the storage daemon has not proved that it is one of the pool's: {}",
            reason.into()
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &[u8]) -> PoolKey {
        PoolKey::new(secret).unwrap()
    }

    fn opening(dialling: &Dialling<'_>) -> Opening {
        dialling.opening
    }

    fn dial<'a>(key: &'a PoolKey, at: &str) -> Dialling<'a> {
        Dialling::new(None, Some(key), at.parse().unwrap(), [7; 32]).unwrap()
    }

    fn proof(dialling: &Dialling<'_>) -> Proof {
        match dialling.prove().unwrap() {
            Request::Session(SessionRequest::Prove { proof, .. }) => proof,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_sides_believe_each_other() {
        let key = key(b"sixteen bytes ok");
        let dialling = dial(&key, "10.0.0.1:7511");
        // The daemon may listen on IPv6 and be found by IPv4.
        let seen = Opening {
            at: "[::ffff:10.0.0.1]:7511".parse().unwrap(),
            ..opening(&dialling)
        };
        let (peer, own) = seen.believe_key(&key, &proof(&dialling)).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        dialling.check(&Reply::Proved(own)).unwrap();
    }

    #[test]
    fn a_proof_is_good_for_one_opening_at_one_address() {
        let key = key(b"sixteen bytes ok");
        let dialling = dial(&key, "10.0.0.1:7511");
        let (good, proof) = (opening(&dialling), proof(&dialling));
        let others = [
            Opening {
                daemon: [8; 32],
                ..good
            },
            Opening {
                client: [8; 32],
                ..good
            },
            Opening {
                at: "10.0.0.2:7511".parse().unwrap(),
                ..good
            },
            Opening {
                at: "10.0.0.1:7512".parse().unwrap(),
                ..good
            },
            Opening {
                with: Daemon::Controller,
                ..good
            },
        ];
        for other in others {
            assert!(other.believe_key(&key, &proof).is_err(), "{other:?}");
            let own = key.answer(&other.of_daemon(0, 0));
            assert!(dialling.check(&Reply::Proved(own)).is_err(), "{other:?}");
        }
    }

    #[test]
    fn a_daemon_without_the_key_is_not_believed() {
        let (good, bad) = (key(b"sixteen bytes ok"), key(b"sixteen bytes no"));
        let dialling = dial(&good, "10.0.0.1:7511");
        let own = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let of_daemon = opening(&dialling).of_daemon(own.0, own.1);
        let replies = [
            Reply::Proved(bad.answer(&of_daemon)),
            // The client's own proof sent back, another client's, none at all.
            Reply::Proved(proof(&dialling)),
            Reply::Proved(good.answer(&opening(&dialling).of_daemon(own.0 + 1, own.1))),
            Reply::Proved(Proof::Munge(b"MUNGE:".to_vec())),
            Reply::Done,
        ];
        for reply in replies {
            let error = dialling.check(&reply).unwrap_err();
            assert!(error.to_string().contains("has not proved"), "{error}");
        }
        dialling
            .check(&Reply::Proved(good.answer(&of_daemon)))
            .unwrap();
    }
}
