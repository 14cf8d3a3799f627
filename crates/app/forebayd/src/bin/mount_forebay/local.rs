//! An instance in directories of this host, on storage daemons in this process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_client::{Admin, ClientOptions, Fs};
use forebay_net::random::random_bytes;
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, InstanceId};
use forebay_store::daemon::{Daemon, StartError, StoreOptions};

use crate::options::Options;

const INSTANCE: InstanceId = InstanceId(1);
/// Bytes of a stripe over several directories.
const STRIPE_BYTES: u64 = 1 << 20;
/// Bytes of an inode's data in a file system of average files, for the number of inodes.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Time to wait for the process of an earlier mount, which ends after it was unmounted.
const MAX_WAIT: Duration = Duration::from_secs(20);
const WAIT_INTERVAL: Duration = Duration::from_millis(50);

/// Starts a storage daemon on each of `directories`, creates the instance if there is none, and
/// attaches it.
pub fn attach(directories: &[PathBuf], options: &Options) -> Result<(Vec<Daemon>, Fs), String> {
    let daemons = directories.iter().map(|path| start(path)).collect::<Result<Vec<_>, _>>()?;
    create_instance(&daemons, directories, options)?;
    let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
    let fs = Fs::attach(addresses, INSTANCE, ClientOptions::default())
        .map_err(|errno| format!("cannot attach the instance: {errno}"))?;
    Ok((daemons, fs))
}

fn start(directory: &Path) -> Result<Daemon, String> {
    let until = Instant::now() + MAX_WAIT;
    loop {
        match Daemon::start(StoreOptions::new(directory)) {
            Err(StartError::DirectoryInUse(_)) if Instant::now() < until => {
                std::thread::sleep(WAIT_INTERVAL);
            }
            other => return other.map_err(|error| error.to_string()),
        }
    }
}

/// Creates the instance, or checks that it lies in these directories in this order.
fn create_instance(
    daemons: &[Daemon],
    directories: &[PathBuf],
    options: &Options,
) -> Result<(), String> {
    let failed = |directory: &Path| {
        let directory = directory.display().to_string();
        move |errno: Errno| format!("{directory}: {errno}")
    };
    let mut admins = Vec::new();
    let mut existing = Vec::new();
    for (daemon, directory) in daemons.iter().zip(directories) {
        let admin = Admin::connect(daemon.address(), ClientOptions::default());
        let admin = admin.map_err(failed(directory))?;
        let all = admin.instances().map_err(failed(directory))?;
        existing.extend(all.into_iter().find(|usage| usage.spec.id == INSTANCE));
        admins.push(admin);
    }
    if !existing.is_empty() {
        let places = existing.iter().map(|usage| {
            let place = &usage.spec.placement;
            (usize::from(place.node.0), usize::from(place.nodes))
        });
        let wanted = (0..daemons.len()).map(|node| (node, daemons.len()));
        return match places.eq(wanted) {
            true => Ok(()),
            false => Err("the instance lies in other directories, or in another order".into()),
        };
    }
    let placements = placements(daemons)?;
    for ((admin, directory), placement) in admins.iter().zip(directories).zip(placements) {
        let capacity = match options.size {
            Some(size) => size / daemons.len() as u64,
            None => default_capacity(directory)?,
        };
        let spec = InstanceSpec {
            id: INSTANCE,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mode: options.mode,
            capacity,
            inodes: (capacity / BYTES_PER_INODE).max(1 << 16),
            placement,
        };
        admin.create_instance(spec).map_err(failed(directory))?;
    }
    Ok(())
}

fn placements(daemons: &[Daemon]) -> Result<Vec<Placement>, String> {
    if daemons.len() == 1 {
        return Ok(vec![Placement::single_node()]);
    }
    let peers: Vec<String> = daemons.iter().map(|daemon| daemon.address().to_string()).collect();
    let secret = random_bytes().map_err(|error| format!("/dev/urandom: {error}"))?;
    Ok(Placement::distributed(STRIPE_BYTES, &peers, secret))
}

/// Four fifths of the free space.
fn default_capacity(directory: &Path) -> Result<u64, String> {
    let found = rustix::fs::statvfs(directory);
    let found = found.map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize) / 5 * 4)
}
