//! Hosts whose authentication the controller refuses, for the users who wait for them.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_net::handshake::Refusal;
use forebay_protocol::Errno;
use parking_lot::Mutex;

use crate::activity::RefusedHost;
use crate::config::AllowedSources;

/// Hosts that are remembered.
const MAX_HOSTS: usize = 64;
/// Time for which a refusal is remembered; daemons try again every few seconds.
const MEMORY: Duration = Duration::from_secs(15);

/// The last refusal of each host.
#[derive(Clone, Debug, Default)]
pub(super) struct RefusedHosts(Arc<Mutex<BTreeMap<IpAddr, (Instant, String)>>>);

impl RefusedHosts {
    /// Notes that the peer at an address failed to authenticate, if `error` says so.
    pub fn record(&self, address: IpAddr, error: &io::Error) {
        let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>());
        let Some(refusal) = refusal.filter(|refusal| refusal.errno == Errno::EKEYREJECTED) else {
            return;
        };
        let mut hosts = self.0.lock();
        hosts.insert(address.to_canonical(), (Instant::now(), refusal.reason.clone()));
        if hosts.len() > MAX_HOSTS
            && let Some(oldest) = hosts.iter().min_by_key(|(_, (at, _))| *at).map(|(at, _)| *at)
        {
            hosts.remove(&oldest);
        }
    }

    /// The hosts that were refused lately, with the storage nodes that `sources` has at
    /// their addresses.
    pub fn list(&self, sources: &BTreeMap<String, AllowedSources>) -> Vec<RefusedHost> {
        let mut hosts = self.0.lock();
        hosts.retain(|_, (at, _)| at.elapsed() < MEMORY);
        let names = |address: &IpAddr| {
            let own = sources.iter().filter(|(_, allowed)| match allowed {
                AllowedSources::Addresses(addresses) => addresses.contains(address),
                AllowedSources::Anywhere => false,
            });
            own.map(|(name, _)| name.clone()).collect()
        };
        let refused = hosts.iter().map(|(address, (_, reason))| RefusedHost {
            address: address.to_string(),
            nodes: names(address),
            reason: reason.clone(),
        });
        refused.collect()
    }
}
