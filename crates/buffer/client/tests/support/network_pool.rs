//! Storage daemons that clients reach over the network, with an instance.

use super::process::key;
use super::{INSTANCE, Temporary, make_instance};
use forebay_client::{ClientOptions, Fs};
use forebay_protocol::address::Address;
use forebay_store::daemon::{Daemon, StatsHandle, StoreOptions};
use std::time::Duration;

pub struct NetworkPool {
    daemons: Vec<Daemon>,
    _temporary: Temporary,
}

impl NetworkPool {
    /// Daemons with 256 MiB each.
    pub fn new(nodes: usize) -> NetworkPool {
        NetworkPool::with_capacity(nodes, nodes as u64 * (256 << 20))
    }

    /// Daemons with `capacity` bytes in total.
    pub fn with_capacity(nodes: usize, capacity: u64) -> NetworkPool {
        let temporary = Temporary::new();
        let start = |node| {
            let mut options = StoreOptions::new(temporary.dir(&format!("flash{node}")));
            (options.tcp, options.key) = (Some(([127, 0, 0, 1], 0).into()), Some(key()));
            Daemon::start(options).unwrap()
        };
        let daemons: Vec<_> = (0..nodes).map(start).collect();
        let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
        make_instance(addresses, capacity);
        NetworkPool { daemons, _temporary: temporary }
    }

    /// The address of the first daemon.
    pub fn address(&self) -> Address {
        self.daemons[0].tcp_address().unwrap()
    }

    /// The addresses of all daemons.
    pub fn addresses(&self) -> Vec<String> {
        let address = |daemon: &Daemon| daemon.tcp_address().unwrap().to_string();
        self.daemons.iter().map(address).collect()
    }

    pub fn attach(&self, options: ClientOptions) -> Fs {
        let nodes: Vec<_> =
            self.daemons.iter().map(|daemon| daemon.tcp_address().unwrap()).collect();
        Fs::attach(nodes, INSTANCE, ClientOptions { key: Some(key()), ..options }).unwrap()
    }

    pub fn client(&self) -> Fs {
        self.attach(ClientOptions::default())
    }

    /// The number of requests of a kind that the daemons have answered.
    pub fn count(&self, kind: &str) -> u64 {
        let count = |stats: StatsHandle| {
            let report = stats.collect_report(Duration::ZERO);
            report.requests.get(kind).map_or(0, |of_kind| of_kind.latency.count())
        };
        self.daemons.iter().map(|daemon| count(daemon.stats())).sum()
    }
}
