//! Addresses: those of the leader, the one of each node towards it, and free ports.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time in which an address of the leader must answer.
const REACH_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for further answers after the first.
const GRACE: Duration = Duration::from_millis(100);
/// Interval at which the leader accepts connections while the nodes start.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(2);

/// The addresses of this host, or of one of its interfaces; the loopback address is the last.
///
/// # Errors
/// There is no such interface, or none is up.
pub fn own_addresses(interface: Option<&str>) -> Result<Vec<IpAddr>, String> {
    use nix::net::if_::InterfaceFlags;
    let list = nix::ifaddrs::getifaddrs().map_err(|e| format!("cannot list interfaces: {e}"))?;
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for entry in list {
        if !names.contains(&entry.interface_name) {
            names.push(entry.interface_name.clone());
        }
        let is_wanted = interface.is_none_or(|name| name == entry.interface_name);
        if !is_wanted || !entry.flags.contains(InterfaceFlags::IFF_UP) {
            continue;
        }
        let Some(address) = entry.address else {
            continue;
        };
        if let Some(v4) = address.as_sockaddr_in() {
            found.push(IpAddr::V4(v4.ip()));
        } else if let Some(v6) = address.as_sockaddr_in6()
            && !v6.ip().is_unicast_link_local()
        {
            found.push(IpAddr::V6(v6.ip()));
        }
    }
    // Stable: IPv4 first within each kind.
    found.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    match (found.is_empty(), interface) {
        (false, _) => Ok(found),
        (true, None) => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
        (true, Some(name)) => Err(format!(
            "interface `{name}` has no address; this host has the interfaces {}",
            names.join(", ")
        )),
    }
}

/// Answers connections with the instance's name, so that nodes can tell which addresses reach this
/// process. Ends when it is dropped.
pub struct Beacon {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beacon {
    /// Starts to answer, at a free port.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn start(id: &str) -> std::io::Result<Beacon> {
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, answer) = (stop.clone(), format!("{id}\n"));
        let thread =
            std::thread::Builder::new().name("forebay-beacon".into()).spawn(move || {
                while !stopped.load(Ordering::Acquire) {
                    match listener.accept() {
                        // A few bytes always fit into the socket's buffer.
                        Ok((mut stream, _)) => drop(stream.write_all(answer.as_bytes())),
                        Err(_) => std::thread::sleep(ACCEPT_INTERVAL),
                    }
                }
            })?;
        Ok(Beacon { port, stop, thread: Some(thread) })
    }

    /// The port at which it answers, of all addresses.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The addresses among `leader` at which the instance `id` answers, each with the address of this
/// host towards it.
pub fn routes_to(leader: &[SocketAddr], id: &str) -> Vec<(SocketAddr, IpAddr)> {
    let (found, routes) = channel();
    for address in leader.iter().copied() {
        let (found, id) = (found.clone(), id.to_owned());
        let probe = move || {
            if let Some(own) = probe(address, &id) {
                let _ = found.send((address, own));
            }
        };
        // Without a thread the address counts as unreachable.
        let _ = std::thread::Builder::new().name("forebay-route".into()).spawn(probe);
    }
    drop(found);
    let mut answered = Vec::new();
    let mut end = Instant::now() + REACH_TIMEOUT;
    while let Ok(route) = routes.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if answered.is_empty() {
            end = end.min(Instant::now() + GRACE);
        }
        answered.push(route);
    }
    answered
}

/// This host's address towards `leader`, if the instance `id` answers there.
fn probe(leader: SocketAddr, id: &str) -> Option<IpAddr> {
    let mut stream = TcpStream::connect_timeout(&leader, REACH_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(REACH_TIMEOUT)).ok()?;
    let mut answer = vec![0; id.len() + 1];
    stream.read_exact(&mut answer).ok()?;
    let own = stream.local_addr().ok()?.ip().to_canonical();
    (answer.strip_suffix(b"\n") == Some(id.as_bytes())).then_some(own)
}

/// A free port that no other process gets as long as this exists; a daemon of this process can
/// still listen at it.
pub struct ReservedPort {
    port: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    /// Reserves `port`, or any free one if it is 0.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn new(port: u16) -> std::io::Result<ReservedPort> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Two such sockets may be bound to a port as long as none of them listens.
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
        let bound = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(ReservedPort { port: bound.port(), _socket: socket })
    }

    /// Its number.
    pub fn port(&self) -> u16 {
        self.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_counts_as_reached_only_where_the_instance_answers() {
        let beacon = Beacon::start("right").unwrap();
        let other = Beacon::start("wrong").unwrap();
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let addresses = [local(other.port()), local(beacon.port())];
        let routes = routes_to(&addresses, "right");
        assert_eq!(routes, [(addresses[1], IpAddr::V4(Ipv4Addr::LOCALHOST))]);
        drop(beacon);
        assert_eq!(routes_to(&addresses, "right"), []);
    }

    #[test]
    fn reserved_port_can_be_used_by_this_process_and_is_given_to_no_other() {
        let reserved = ReservedPort::new(0).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, reserved.port())).unwrap();
        assert_eq!(listener.local_addr().unwrap().port(), reserved.port());
        assert!(ReservedPort::new(reserved.port()).is_err(), "it is in use");
    }

    #[test]
    fn loopback_is_the_last_address_and_unknown_interfaces_are_refused() {
        let all = own_addresses(None).unwrap();
        assert!(all.windows(2).all(|pair| !pair[0].is_loopback() || pair[1].is_loopback()));
        assert!(own_addresses(Some("lo")).unwrap().iter().all(IpAddr::is_loopback));
        let refused = own_addresses(Some("no0")).unwrap_err();
        assert!(refused.contains("`no0`") && refused.contains("lo"), "{refused}");
    }
}
