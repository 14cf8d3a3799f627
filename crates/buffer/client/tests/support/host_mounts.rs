//! Mounts of one instance, each as of a host of its own.

use super::faulty_network::FaultyNetwork;
use super::network_pool::NetworkPool;
use super::{Temporary, mount_at, unmount};
use forebay_client::{ClientOptions, Mount};
use std::path::PathBuf;
use std::sync::Arc;

pub struct HostMounts {
    pub mounts: Vec<Mount>,
    pub paths: Vec<PathBuf>,
    pub pool: NetworkPool,
    _temporary: Temporary,
}

impl HostMounts {
    /// A mount over each of these networks.
    pub fn new(pool: NetworkPool, networks: &[FaultyNetwork]) -> HostMounts {
        let temporary = Temporary::new();
        let path = |number| temporary.dir(&format!("mnt{number}"));
        let paths: Vec<PathBuf> = (0..networks.len()).map(path).collect();
        let mount = |(network, path): (&FaultyNetwork, &PathBuf)| {
            let system = Arc::new(network.clone());
            mount_at(pool.attach(ClientOptions { system, ..ClientOptions::default() }), path)
        };
        let mounts = networks.iter().zip(&paths).map(mount).collect();
        HostMounts { mounts, paths, pool, _temporary: temporary }
    }

    /// A file on one of the mounts.
    pub fn file(&self, mount: usize, name: &str) -> PathBuf {
        self.paths[mount].join(name)
    }

    pub fn end(self) {
        self.mounts.into_iter().for_each(unmount);
    }
}

/// Reads in pieces of a length, from the beginning, by `read_at`, which returns the number of bytes. Returns
/// all.
pub fn read_whole(piece: usize, read_at: impl Fn(&mut [u8], u64) -> usize) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
    loop {
        let count = read_at(&mut buffer, all.len() as u64);
        all.extend_from_slice(&buffer[..count]);
        if count < piece {
            return all;
        }
    }
}
