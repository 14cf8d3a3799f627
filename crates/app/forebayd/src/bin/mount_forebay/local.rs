//! An instance in directories of this host, on storage daemons in this process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_client::{Admin, ClientOptions, Fs};
use forebay_console::print_stderr;
use forebay_net::random::random_bytes;
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, InstanceId};
use forebay_store::daemon::{Daemon, StartError, StoreOptions};
use forebay_store::shared_space::SharedSpace;
use forebay_units::{Bytes, human};

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
/// attaches it. `None`: another process has mounted it, and `join` has succeeded.
pub fn attach(
    directories: &[PathBuf],
    options: &Options,
    join: impl Fn() -> Result<bool, String>,
) -> Result<Option<(Vec<Daemon>, Fs)>, String> {
    let mut daemons = Vec::new();
    for (directory, shared) in directories.iter().zip(SharedSpace::of_nodes(directories.len())) {
        match start(directory, shared, &join)? {
            Some(daemon) => daemons.push(daemon),
            None => return Ok(None),
        }
    }
    create_instance(&daemons, directories, options)?;
    let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
    let fs = Fs::attach(addresses, INSTANCE, ClientOptions::default())
        .map_err(|errno| format!("cannot attach the instance: {errno}"))?;
    Ok(Some((daemons, fs)))
}

fn start(
    directory: &Path,
    shared: SharedSpace,
    join: impl Fn() -> Result<bool, String>,
) -> Result<Option<Daemon>, String> {
    let options = StoreOptions { shared_space: Some(shared), ..StoreOptions::new(directory) };
    let until = Instant::now() + MAX_WAIT;
    loop {
        match Daemon::start(options.clone()) {
            Err(StartError::DirectoryInUse(_)) if join()? => return Ok(None),
            Err(StartError::DirectoryInUse(_)) if Instant::now() < until => {
                std::thread::sleep(WAIT_INTERVAL);
            }
            other => return other.map(Some).map_err(|error| error.to_string()),
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
        let usage = all.into_iter().find(|usage| usage.spec.id == INSTANCE);
        existing.extend(usage.map(|usage| (directory.as_path(), usage.spec)));
        admins.push(admin);
    }
    if !existing.is_empty() {
        check_places(&existing, daemons.len())?;
        say_that_size_stays(&existing, options.size);
        return Ok(());
    }
    if let Some(size) = options.size {
        check_size(directories, size)?;
    }
    let specs = instance_specs(daemons, directories, options)?;
    for (index, (directory, spec)) in directories.iter().zip(specs).enumerate() {
        if let Err(errno) = admins[index].create_instance(spec) {
            // The last one may have been created without a reply. Those that stay are reported at
            // the next attempt.
            for admin in &admins[..=index] {
                let _ = admin.remove_instance(INSTANCE, true);
            }
            return Err(failed(directory)(errno));
        }
    }
    Ok(())
}

/// Fails unless the parts found are those of an instance in `count` directories in this order.
fn check_places(existing: &[(&Path, InstanceSpec)], count: usize) -> Result<(), String> {
    if existing.len() < count {
        let places: Vec<_> = existing.iter().map(|(path, _)| path.display().to_string()).collect();
        let verb = if places.len() == 1 { "has" } else { "have" };
        return Err(format!("of these directories only {} {verb} an instance", places.join(", ")));
    }
    let places = existing.iter().map(|(_, spec)| &spec.placement);
    let places = places.map(|place| (usize::from(place.node.0), place.nodes.into()));
    match places.eq((0..count).map(|node| (node, count))) {
        true => Ok(()),
        false => Err("the instance lies in other directories, or in another order".into()),
    }
}

/// Says that an existing instance keeps its size. That is no error: `fstab` has the same options for the
/// first mount and for all later ones.
fn say_that_size_stays(existing: &[(&Path, InstanceSpec)], size: Option<u64>) {
    let capacity = existing.iter().map(|(_, spec)| spec.capacity).sum::<u64>();
    let count = existing.len() as u64;
    if let Some(size) = size.filter(|size| size / count * count != capacity) {
        print_stderr(format_args!(
            "mount.forebay: warning: the instance exists and keeps its size, {}; `size=` of {} has no effect",
            Bytes(capacity),
            Bytes(size)
        ));
    }
}

/// Fails if the file systems of `directories` do not have `size` bytes, even if they were empty.
fn check_size(directories: &[PathBuf], size: u64) -> Result<(), String> {
    let mut totals = BTreeMap::new();
    for directory in directories {
        let failed = |error| format!("{}: {error}", directory.display());
        let device = rustix::fs::stat(directory).map_err(failed)?.st_dev;
        let found = rustix::fs::statvfs(directory).map_err(failed)?;
        totals.insert(device, found.f_blocks.saturating_mul(found.f_frsize));
    }
    let total = totals.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    if size > total {
        return Err(format!(
            "`size=` of {} is more than the file systems of the directories have, which is {}",
            Bytes(size),
            human::bytes(total)
        ));
    }
    Ok(())
}

/// The parts of a new instance, for each of its directories.
fn instance_specs(
    daemons: &[Daemon],
    directories: &[PathBuf],
    options: &Options,
) -> Result<Vec<InstanceSpec>, String> {
    let spec = |(directory, placement): (&PathBuf, Placement)| {
        let capacity = match options.size {
            Some(size) => size / directories.len() as u64,
            None => default_capacity(directory)?,
        };
        Ok(InstanceSpec {
            id: INSTANCE,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mode: options.mode,
            capacity,
            inodes: (capacity / BYTES_PER_INODE).max(1 << 16),
            placement,
        })
    };
    directories.iter().zip(placements(daemons)?).map(spec).collect()
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use super::*;

    #[test]
    fn instance_that_one_directory_refuses_is_created_in_none() {
        let home = tempfile::tempdir().unwrap();
        let directories = ["a", "b", "c"].map(|name| home.path().join(name));
        let daemons = directories.clone().map(|path| {
            std::fs::create_dir(&path).unwrap();
            let mut store = StoreOptions::new(&path);
            if path == directories[1] {
                store.limits.max_instances = 0;
            }
            Daemon::start(store).unwrap()
        });
        let options = Options { size: Some(3 << 30), ..Options::default() };
        let reason = create_instance(&daemons, &directories, &options).unwrap_err();
        assert!(reason.starts_with(directories[1].to_str().unwrap()), "{reason}");
        for daemon in &daemons {
            let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
            assert!(admin.instances().unwrap().is_empty());
        }
    }
}
