//! Authentication of peers.
//!
//! On a Unix socket the kernel identifies the peer. On TCP both sides authenticate in the
//! [handshake](crate::handshake), by MUNGE or by the pool's key.

use crate::munge::{DecodedCredential, Munge};
use crate::record::DataProtection;
use forebay_protocol::{Errno, PeerIdentity};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Keys and settings with which a process and its peers authenticate each other on TCP. With both
/// keys, clients use MUNGE.
#[derive(Clone, Debug, Default)]
pub struct Authenticator {
    /// The pool's key.
    pub key: Option<PoolKey>,
    /// The host's `munged`.
    pub munge: Option<Munge>,
    /// Protection of bulk data, for which a storage daemon and its client must have the same
    /// setting. `None`: `Off` in a daemon, the daemon's setting in a client.
    pub data_protection: Option<DataProtection>,
}

/// The peer of a Unix socket, identified by the kernel.
pub fn unix_peer(socket: impl AsFd) -> io::Result<PeerIdentity> {
    let cred = rustix::net::sockopt::socket_peercred(&socket)?;
    let uid = cred.uid.as_raw();
    Ok(PeerIdentity {
        uid,
        gid: cred.gid.as_raw(),
        groups: peer_groups(socket)?,
        trusted: is_trusted(uid),
        local: true,
    })
}

/// Root and this process's own user are trusted.
fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let fd = socket.as_fd().as_raw_fd();
    let mut groups = vec![0u32; 64];
    loop {
        let mut length = (groups.len() * 4) as libc::socklen_t;
        // SAFETY: `groups` has `length` bytes, and the kernel writes no more than that.
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
        // On ERANGE the kernel sets `length` to the required length.
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

    /// The key derived from the contents of `file`, which must be accessible to its owner only. The
    /// reason of a failure names the file and the remedy.
    pub fn read(file: &Path) -> Result<PoolKey, String> {
        let name = file.display();
        let failed = |error: io::Error| format!("key file {name}: {error}");
        let mode = std::fs::metadata(file).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(format!(
                "key file {name}: accessible to other users, and the key gives full access; \
                 `chmod 600 {name}`"
            ));
        }
        let secret = std::fs::read(file).map_err(failed)?;
        PoolKey::new(&secret).map_err(|_| format!("key file {name}: a key has at least 16 bytes"))
    }

    /// The key, for the handshake.
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The identity in a MUNGE credential with the payload `challenge`; `None` if its payload is another
/// one.
pub(crate) fn credential_peer(
    credential: &DecodedCredential,
    challenge: &[u8; 32],
) -> Option<PeerIdentity> {
    (credential.payload == challenge).then(|| PeerIdentity {
        trusted: is_trusted(credential.uid),
        ..key_peer(credential.uid, credential.gid)
    })
}

/// The identity of a holder of the pool's key that acts for this user and group.
pub(crate) fn key_peer(uid: u32, gid: u32) -> PeerIdentity {
    PeerIdentity { uid, gid, groups: Vec::new(), trusted: true, local: false }
}
