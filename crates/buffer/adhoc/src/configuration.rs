//! The configuration of the pool that the hosts form, and its storage nodes.

use std::net::SocketAddr;
use std::path::Path;

use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::home::agent_directory;

/// Capacities are multiples of this.
const CAPACITY_UNIT: u64 = 16 << 20;
/// Smallest capacity of a host.
const MIN_CAPACITY: u64 = 64 << 20;

/// A storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Its host, as the list of hosts has it.
    pub host: String,
    /// The address of its storage daemon.
    pub address: SocketAddr,
}

/// A pool over the hosts of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool<'a> {
    /// The name of the instance.
    pub id: &'a str,
    /// Its storage nodes.
    pub nodes: &'a [NodeAddress],
    /// Bytes of each of them.
    pub capacity: Bytes,
    /// The address of the controller.
    pub controller: SocketAddr,
    /// The leader's directory.
    pub leader: &'a Path,
    /// The directory of each host.
    pub home: &'a Path,
}

/// The capacity of a host that has `free` bytes: `wanted`, or four fifths of the free space.
///
/// # Errors
/// The space does not suffice.
pub fn capacity(free: u64, wanted: Option<Bytes>) -> Result<Bytes, String> {
    use forebay_units::human::bytes;
    let given = wanted.map_or(free / 5 * 4, |size| size.0);
    let capacity = given / CAPACITY_UNIT * CAPACITY_UNIT;
    if capacity > free {
        return Err(format!(
            "{} are more than the {} that are free; name a smaller --size, or another --local",
            bytes(capacity),
            bytes(free)
        ));
    }
    if capacity < MIN_CAPACITY {
        return Err(format!(
            "{} are too little, the least is {}; name another --size or --local",
            bytes(given),
            bytes(MIN_CAPACITY)
        ));
    }
    Ok(Bytes(capacity))
}

impl Pool<'_> {
    /// The configuration file, with the key in the file `key`.
    pub fn text(&self, key: &Path) -> String {
        // Escapes of JSON are those of TOML.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let path = |path: &Path| quoted(&path.to_string_lossy());
        let uid = rustix::process::geteuid().as_raw();
        let mut text = format!(
            "[pool]\nname = \"{}\"\ngranularity = \"{}MiB\"\nequalize_fragments = false\n\n\
             [controller]\naddress = \"{}\"\ndirectory = {}\nsocket = {}\noperator = \"{uid}\"\n\
             only_user = \"{uid}\"\n\n\
             [agent]\ndirectory = {}\nmount_root = {}\n\n\
             [auth]\nmethod = \"key\"\nkey_file = {}\n",
            self.id,
            self.capacity.0 >> 20,
            self.controller,
            path(&self.leader.join("controller")),
            path(&self.leader.join("socket")),
            path(&agent_directory(self.home)),
            path(self.home),
            path(key),
        );
        for node in self.nodes {
            text.push_str(&format!(
                "\n[[storage]]\nname = {}\naddress = \"{}\"\ndirectory = {}\ncapacity = \"{}MiB\"\n",
                quoted(&node.host),
                node.address,
                path(&self.home.join("storage")),
                self.capacity.0 >> 20,
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_daemon::PoolConfig;

    #[test]
    fn configuration_can_be_read_and_belongs_to_this_user() {
        let address = |port| SocketAddr::from(([10, 77, 0, 1], port));
        let node = |host: &str, port| NodeAddress { host: host.into(), address: address(port) };
        let nodes = [node("n1", 4000), node("n2", 4001)];
        let pool = Pool {
            id: "0123abcd",
            nodes: &nodes,
            capacity: Bytes(96 << 20),
            controller: address(5000),
            leader: Path::new("/l/a \"quoted\" leader"),
            home: Path::new("/l/home"),
        };
        let text = pool.text(Path::new("/l/key"));
        let read = PoolConfig::parse(Path::new("pool.toml"), &text).unwrap();
        assert_eq!(read.controller_socket, Path::new("/l/a \"quoted\" leader/socket"));
        assert_eq!(read.only_user, Some(rustix::process::geteuid().as_raw()));
        assert_eq!(read.granularity, Bytes(96 << 20));
        assert_eq!(read.storage_node("n2").unwrap().address, address(4001));
    }

    #[test]
    fn capacity_is_four_fifths_of_the_free_space_or_what_was_asked_for() {
        let gib = 1 << 30;
        assert_eq!(capacity(10 * gib, None), Ok(Bytes(8 * gib)));
        assert_eq!(capacity(10 * gib, Some(Bytes(100 << 20))), Ok(Bytes(96 << 20)));
        assert!(capacity(gib, Some(Bytes(2 * gib))).unwrap_err().contains("smaller --size"));
        assert!(capacity(50 << 20, None).unwrap_err().contains("too little"));
    }
}
