//! Authentication of peers.
//!
//! On a Unix socket the kernel identifies the peer. On TCP both sides authenticate in the
//! [handshake](crate::handshake), by MUNGE or by the pool's key.

use crate::munge::{DecodedCredential, Munge};
use forebay_protocol::identity::PeerIdentity;
use forebay_protocol::ids::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What a process authenticates itself and its peers with on TCP. With both, clients use MUNGE.
#[derive(Clone, Debug, Default)]
pub struct Authenticator {
    /// The pool's key.
    pub key: Option<PoolKey>,
    /// The host's `munged`.
    pub munge: Option<Munge>,
}

impl Authenticator {
    /// Whether peers on other hosts can be authenticated at all.
    pub fn is_configured(&self) -> bool {
        self.key.is_some() || self.munge.is_some()
    }
}

/// The peer at the other end of a Unix socket, from the kernel.
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

    /// The key itself, for the handshake.
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The identity of a MUNGE credential's maker, if its payload is `challenge`. Trusted are root and
/// this process's own user.
pub(crate) fn credential_peer(
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

/// The identity of a holder of the pool's key that acts for this user and group.
pub(crate) fn key_peer(uid: u32, gid: u32) -> PeerIdentity {
    PeerIdentity { uid, gid, groups: Vec::new(), trusted: true, local: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn kernel_identifies_the_peer_of_a_unix_socket() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = unix_peer(&a).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.trusted && peer.local);
    }

    #[test]
    fn short_pool_key_is_refused() {
        assert!(PoolKey::new(b"sixteen bytes ok").is_ok());
        assert_eq!(PoolKey::new(b"short").err(), Some(Errno::EINVAL));
    }
}
