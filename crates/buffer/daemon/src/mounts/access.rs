//! Sessions with instances, and the directories in them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use forebay_client::Fs;
use forebay_job_script::AccessMode;
use forebay_protocol::Credentials;
use forebay_protocol::address::Address;
use forebay_protocol::message::ClientHost;
use forebay_protocol::{Errno, Ino};

use forebay_control::messages::{InstanceId, Owner};

/// Maximum time to wait for the daemon of a replica: there are others.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(10);

/// The way in which this process connects to storage daemons.
#[derive(Clone, Debug)]
pub struct StorageAccess {
    /// The daemons on this host: the listed address of each, and its Unix socket, which is faster.
    pub own: Vec<(String, Address)>,
    /// Credentials and timeouts.
    pub options: forebay_client::ClientOptions,
}

impl StorageAccess {
    /// The addresses of an instance's daemons, in their order. None are listed if the only one is
    /// on this host.
    fn addresses(&self, listed: &[String]) -> Result<Vec<Address>, String> {
        if listed.is_empty() {
            return Ok(self.own.iter().map(|(_, address)| address.clone()).collect());
        }
        let one = |text: &String| match self.own.iter().find(|(known, _)| known == text) {
            Some((_, local)) => Ok(local.clone()),
            None => {
                text.parse().map_err(|_| format!("`{text}` is not the address of a storage daemon"))
            }
        };
        listed.iter().map(one).collect()
    }

    pub(super) fn open_session(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        listed: &[String],
        client: ClientHost,
    ) -> Result<Fs, String> {
        let addresses = self.addresses(listed)?;
        if addresses.is_empty() {
            return Err("no storage daemon has the instance".to_owned());
        }
        let mut options = forebay_client::ClientOptions { client, ..self.options.clone() };
        if mode == AccessMode::LoadBalanced {
            options.timeout = options.timeout.min(REPLICA_TIMEOUT);
        }
        Fs::attach(addresses, instance, options).map_err(|errno| {
            let reason = match errno {
                Errno::ENOKEY => {
                    "authentication failed: the server at a storage node's address is \
                                  not one of the pool's daemons; the log has the address"
                        .to_owned()
                }
                Errno::ESTALE => {
                    "a storage node refuses this mount, as its host was presumed dead".to_owned()
                }
                other => other.to_string(),
            };
            format!("cannot attach the instance: {reason}")
        })
    }
}

/// Makes the directory of an access mode for the instance's owner, with the permissions of the
/// instance. An existing one is left as it is. It is created on behalf of the owner, so that a crash
/// leaves no directory with another owner.
pub(super) fn make_mode_directory(attached: &Fs, space: &Path, owner: Owner) -> Result<(), Errno> {
    let mut parent = Ino::ROOT;
    for above in space.parent().into_iter().flat_map(Path::iter) {
        let name = above.as_bytes();
        parent = match attached.lookup(parent, name) {
            Err(Errno::ENOENT) => match attached.mkdir(parent, name, 0o755) {
                Err(Errno::EEXIST) => attached.lookup(parent, name)?.ino, // Another host was faster.
                made => made?.ino,
            },
            found => found?.ino,
        };
    }
    let name = space.file_name().ok_or(Errno::EINVAL)?.as_bytes();
    match attached.lookup(parent, name) {
        Err(Errno::ENOENT) => {}
        found => return found.map(|_| ()),
    }
    let mode = attached.get_attr(Ino::ROOT)?.mode;
    let own = rustix::process::geteuid().as_raw() == owner.uid
        && rustix::process::getegid().as_raw() == owner.gid;
    // Other users have no access to an instance of this process's user anyway.
    let mode = if own && mode & 0o077 == 0 { 0o755 } else { mode };
    let (uid, gid) = (owner.uid, owner.gid);
    // Already authorized: the directory above belongs to root.
    let checked = true;
    let owners = attached.on_behalf_of(Credentials { uid, gid, groups: Some(Vec::new()), checked });
    match owners.mkdir(parent, name, mode) {
        Err(Errno::EEXIST) => Ok(()),
        made => made.map(|_| ()),
    }
}
