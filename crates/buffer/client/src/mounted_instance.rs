//! The instance behind a mount, for processes that want to use it through the library.

use crate::fs::Fs;
use crate::session::ClientOptions;
use crate::sessions::Sessions;
use forebay_net::auth::PoolKey;
use forebay_net::munge::Munge;
use forebay_net::record::DataProtection;
use forebay_protocol::address::Address;
use forebay_protocol::message::ClientHost;
use forebay_protocol::{Errno, InstanceId};
use serde::{Deserialize, Serialize};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Extended attribute of a mount's root: a [`MountedInstance`] in JSON. It is not listed.
pub(crate) const ATTRIBUTE: &str = "user.forebay.instance";
/// Environment variable with the path of a file that contains the key of a pool without MUNGE. Only
/// the user of such a pool can read it.
pub const KEY_VARIABLE: &str = "FOREBAY_KEY_FILE";
/// Maximum length of the attribute's value, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// The addresses of a mounted instance. It contains no secrets: a process attaches with its own
/// credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedInstance {
    instance: InstanceId,
    /// Addresses of its storage daemons, in the order of its nodes.
    nodes: Vec<String>,
    /// Whether the mount uses MUNGE for daemons on other hosts.
    munge: bool,
    /// The socket of `munged`, if it is not the default one.
    munge_socket: Option<PathBuf>,
    /// Protection of data that daemons on other hosts must have.
    data_protection: Option<DataProtection>,
    /// The mount: what is refused to it is refused to this process, too.
    #[serde(default)]
    client: Option<ClientHost>,
}

impl MountedInstance {
    pub(crate) fn of_sessions(sessions: &Sessions) -> MountedInstance {
        let options = sessions.options();
        MountedInstance {
            instance: sessions.instance(),
            nodes: sessions.addresses().map(Address::to_string).collect(),
            munge: options.munge.is_some(),
            munge_socket: options.munge.as_ref().and_then(Munge::socket),
            data_protection: options.data_protection,
            client: Some(options.client.clone()),
        }
    }

    /// Asks a mount; `root` is its root directory, of which `O_PATH` is enough. `ENODATA`: not a mount
    /// of an instance.
    pub fn of_mount(root: impl AsFd) -> Result<MountedInstance, Errno> {
        use std::os::fd::AsRawFd;
        let mut value = vec![0; MAX_BYTES];
        // Attributes of `O_PATH` descriptors cannot be read directly.
        let path = format!("/proc/self/fd/{}", root.as_fd().as_raw_fd());
        let length = rustix::fs::getxattr(path, ATTRIBUTE, value.as_mut_slice())
            .map_err(|errno| Errno(errno.raw_os_error()))?;
        serde_json::from_slice(&value[..length]).map_err(|_| Errno::EPROTO)
    }

    /// Attaches to the instance with the credentials of this process, and in a pool without MUNGE
    /// with the key that [`KEY_VARIABLE`] names. `EACCES`: daemons on other hosts need credentials that
    /// this process does not have.
    pub fn attach(&self, options: ClientOptions) -> Result<Fs, Errno> {
        let parsed = self.nodes.iter().map(|text| text.parse());
        let nodes = parsed.collect::<Result<Vec<Address>, _>>()?;
        let munge = match self.munge {
            true => Some(Munge::new(self.munge_socket.clone()).map_err(|_| Errno::EACCES)?),
            false => None,
        };
        let key = match self.munge {
            true => None,
            false => key_of_environment(),
        };
        let is_remote = |address: &Address| matches!(address, Address::Tcp(_));
        if munge.is_none() && key.is_none() && nodes.iter().any(is_remote) {
            return Err(Errno::EACCES);
        }
        let data_protection = self.data_protection;
        let client = self.client.clone().unwrap_or_else(|| options.client.clone());
        let options = ClientOptions { munge, key, data_protection, client, ..options };
        Fs::attach(nodes, self.instance, options)
    }
}

/// The key that the environment names. Without one, daemons on other hosts refuse this process.
fn key_of_environment() -> Option<PoolKey> {
    let file = std::env::var_os(KEY_VARIABLE)?;
    PoolKey::read(Path::new(&file)).ok()
}
