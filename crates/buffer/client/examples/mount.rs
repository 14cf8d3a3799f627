//! Run a storage daemon on each of some directories, make an instance over them, and mount it:
//! `mount <flash directory>[,...] <mount point>[,...] [capacity in MiB [default_permissions]]`. Ends when
//! its standard input ends. Then prints the operations of the first mount and the requests of the
//! daemons: number, and mean time in microseconds.

#[allow(dead_code)] // the tests use the rest
#[path = "../tests/support/striped_admin.rs"]
mod striped_admin;

use forebay_client::{ClientOptions, Fs, Mount, MountOptions, mount};
use forebay_metrics::LatencySnapshot;
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, InstanceId};
use forebay_store::daemon::{self, Daemon};
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use striped_admin::StripedAdmin;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flash, at, rest @ ..] = arguments.as_slice() else {
        let usage = "usage: mount <flash directory>[,...] <mount point>[,...] [capacity in MiB [default_permissions]]";
        return Err(usage.into());
    };
    let capacity = rest.first().map_or(Ok(16 << 10), |text| text.parse::<u64>())? << 20;
    let start = |directory| Daemon::start(daemon::StoreOptions::new(directory));
    let daemons: Vec<Daemon> = flash.split(',').map(start).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
    let admin = StripedAdmin::connect(addresses.clone(), &ClientOptions::default())?;
    let id = InstanceId(1);
    let spec = InstanceSpec {
        id,
        uid: 0,
        gid: 0,
        mode: 0o777,
        capacity: capacity / daemons.len() as u64,
        inodes: 10_000_000,
        placement: Placement::single_node(),
    };
    match admin.create_instance(&spec, 1 << 20) {
        Err(error) if error.errno != Errno::EEXIST => return Err(error.into()),
        _ => {}
    }
    let fs = Fs::attach(addresses, id, ClientOptions::default())?;
    let kernel_permissions = rest.get(1).is_some_and(|word| word == "default_permissions");
    let options = MountOptions { kernel_permissions, ..MountOptions::default() };
    let mounts = at.split(',').map(|at| mount(fs.clone(), Path::new(at), &options));
    let mounts: Vec<Mount> = mounts.collect::<Result<_, _>>()?;
    drop(fs);
    println!("mounted at {at}");
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {}
    for (name, latency) in mounts.iter().take(1).flat_map(|mount| mount.report().operations) {
        print_times("mount", &name, &latency);
    }
    for mount in mounts {
        mount.unmount()?;
    }
    for daemon in daemons {
        let requests = daemon.stats().collect_report(Duration::ZERO).requests;
        for (kind, stats) in &requests {
            print_times("daemon", kind, &stats.latency);
        }
        daemon.stop()?;
    }
    Ok(())
}

fn print_times(whose: &str, name: &str, latency: &LatencySnapshot) {
    if let Some(mean) = latency.mean() {
        println!("{whose} {name} {} {:.1}", latency.count(), mean.as_secs_f64() * 1e6);
    }
}
