//! Who is at the other end of a connection.
//!
//! On a Unix socket the kernel says. On TCP either side answers a challenge, to which both have
//! contributed random bytes ([`opening`](forebay_protocol::handshake)), in one of two ways. With a MUNGE
//! credential that contains the challenge, `munged` says who made it. With a keyed hash over the
//! challenge it proves that it holds the pool's key, and names the user it speaks for: holders of
//! the key are trusted to tell the truth about that, as root on a cluster's own nodes is.

use crate::munge::{DecodedCredential, Munge};
use forebay_protocol::identity::{PeerIdentity, Proof};
use forebay_protocol::ids::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Ask the kernel who is at the other end of a Unix socket.
pub fn unix_peer(socket: impl AsFd) -> io::Result<PeerIdentity> {
    let cred = rustix::net::sockopt::socket_peercred(&socket)?;
    let uid = cred.uid.as_raw();
    let own = rustix::process::geteuid().as_raw();
    Ok(PeerIdentity {
        uid,
        gid: cred.gid.as_raw(),
        groups: peer_groups(socket)?,
        trusted: uid == 0 || uid == own,
        local: true,
    })
}

fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let fd = socket.as_fd().as_raw_fd();
    let mut groups = vec![0u32; 64];
    loop {
        let mut length = (groups.len() * 4) as libc::socklen_t;
        // SAFETY: `groups` has room for `length` bytes, and the kernel writes no more than that.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result == 0 {
            groups.truncate(length as usize / 4);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // On ERANGE the kernel has put the needed length into `length`.
        if error.raw_os_error() != Some(libc::ERANGE) || length as usize <= groups.len() * 4 {
            return Err(error);
        }
        groups.resize(length as usize / 4, 0);
    }
}

/// The secret shared by all hosts of a pool.
#[derive(Clone)]
pub struct PoolKey([u8; 32]);

impl std::fmt::Debug for PoolKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PoolKey(…)")
    }
}

impl PoolKey {
    /// The key derived from `secret`, which must have at least 16 bytes.
    pub fn new(secret: &[u8]) -> Result<PoolKey, Errno> {
        if secret.len() < 16 {
            return Err(Errno::EINVAL);
        }
        Ok(PoolKey(blake3::derive_key("forebay pool key 1", secret)))
    }

    /// The proof that the holder of this key speaks for `uid` and `gid`, in answer to `nonce`.
    pub fn prove(&self, nonce: &[u8; 32], uid: u32, gid: u32) -> [u8; 32] {
        *self.hash(nonce, uid, gid).as_bytes()
    }

    /// This process's answer to a [`challenge`].
    pub fn answer(&self, challenge: &[u8; 32]) -> Proof {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Proof::Key {
            mac: self.prove(challenge, uid, gid),
            uid,
            gid,
        }
    }

    /// Whether `mac` is that proof. Takes the same time either way.
    pub fn verify(&self, nonce: &[u8; 32], uid: u32, gid: u32, mac: &[u8; 32]) -> bool {
        self.hash(nonce, uid, gid) == blake3::Hash::from_bytes(*mac)
    }

    fn hash(&self, nonce: &[u8; 32], uid: u32, gid: u32) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher
            .update(nonce)
            .update(&uid.to_le_bytes())
            .update(&gid.to_le_bytes());
        hasher.finalize()
    }
}

/// What is to be proved in one kind of conversation, which `context` names, after both sides have
/// said `text`. An answer given in one kind is of no use in another, so nobody who gets to put
/// challenges in the one can pass the answers on in the other.
pub fn challenge(context: &str, text: &[u8]) -> [u8; 32] {
    blake3::derive_key(context, text)
}

/// This process's answer to a [`challenge`]: by MUNGE if there is one, else by the key.
pub fn answer(
    munge: Option<&Munge>,
    key: Option<&PoolKey>,
    challenge: &[u8; 32],
) -> io::Result<Proof> {
    if let Some(munge) = munge {
        return munge
            .encode(challenge)
            .map(Proof::Munge)
            .map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error));
    }
    let Some(key) = key else {
        return Err(io::Error::other(Errno::EKEYREJECTED));
    };
    Ok(key.answer(challenge))
}

/// Whom a credential makes its sender, if it answers this [`challenge`]. Trusted are root and
/// this process's own user.
pub fn credential_peer(
    credential: &DecodedCredential,
    challenge: &[u8; 32],
) -> Result<PeerIdentity, Errno> {
    if credential.payload != challenge {
        return Err(Errno::EKEYREJECTED);
    }
    let own = rustix::process::geteuid().as_raw();
    Ok(PeerIdentity {
        uid: credential.uid,
        gid: credential.gid,
        groups: Vec::new(),
        trusted: credential.uid == 0 || credential.uid == own,
        local: false,
    })
}

/// Whom a key's proof makes its sender, if it answers this [`challenge`].
pub fn proof_peer(
    key: &PoolKey,
    proof: &Proof,
    challenge: &[u8; 32],
) -> Result<PeerIdentity, Errno> {
    match proof {
        Proof::Key { mac, uid, gid } if key.verify(challenge, *uid, *gid, mac) => {
            Ok(PeerIdentity {
                uid: *uid,
                gid: *gid,
                groups: Vec::new(),
                trusted: true,
                local: false,
            })
        }
        _ => Err(Errno::EKEYREJECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_kernel_names_the_peer() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = unix_peer(&a).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.trusted && peer.local);
    }

    #[test]
    fn a_proof_fits_one_challenge_and_one_user() {
        let key = PoolKey::new(b"sixteen bytes ok").unwrap();
        let mac = key.prove(&[1; 32], 1000, 100);
        assert!(key.verify(&[1; 32], 1000, 100, &mac));
        assert!(!key.verify(&[2; 32], 1000, 100, &mac));
        assert!(!key.verify(&[1; 32], 0, 100, &mac));
        assert!(
            !PoolKey::new(b"sixteen bytes no")
                .unwrap()
                .verify(&[1; 32], 1000, 100, &mac)
        );
        assert!(PoolKey::new(b"short").is_err());
    }

    #[test]
    fn an_answer_is_good_in_one_kind_of_conversation() {
        let key = PoolKey::new(b"sixteen bytes ok").unwrap();
        let one = challenge("one", &[7; 32]);
        let proof = answer(None, Some(&key), &one).unwrap();
        assert!(proof_peer(&key, &proof, &one).unwrap().trusted);
        assert!(proof_peer(&key, &proof, &[7; 32]).is_err());
        assert!(proof_peer(&key, &proof, &challenge("another", &[7; 32])).is_err());
        assert!(answer(None, None, &one).is_err());
    }
}
