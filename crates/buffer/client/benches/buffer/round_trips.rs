//! Number of requests that a daemon serves per operation: each is a round trip.

use crate::Outcome;
use crate::site::INSTANCE;
use crate::striped_admin::StripedAdmin;
use forebay_client::{ClientOptions, Fs, MountOptions, mount};
use forebay_protocol::message::{InstanceSpec, OpenMode};
use forebay_protocol::placement::Placement;
use forebay_store::daemon::{self, Daemon, StatsHandle};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

const OPERATIONS: u64 = 100;
const WARM_UP: u64 = 20;
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// Requests per operation.
pub struct RoundTrips {
    pub library_stat: f64,
    pub library_create: f64,
    pub mount_stat: f64,
    pub mount_create: f64,
}

fn count_requests(stats: &StatsHandle) -> u64 {
    stats.collect_report(Duration::ZERO).total_latency().count()
}

/// Counts on a separate daemon in `parent`. Paths have one directory; a second session is open, so that
/// the mount may not cache.
pub fn count(parent: &Path) -> Outcome<RoundTrips> {
    let dir = parent.join(format!("forebay-trips-{}", std::process::id()));
    let mnt = dir.join("mnt");
    fs::create_dir_all(&mnt)?;
    let daemon = Daemon::start(daemon::StoreOptions::new(dir.join("flash")))?;
    let spec = InstanceSpec {
        id: INSTANCE,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: 0o777,
        capacity: 1 << 30,
        inodes: 1_000_000,
        placement: Placement::single_node(),
    };
    StripedAdmin::connect(daemon.address(), &ClientOptions::default())?
        .create_instance(&spec, 1 << 20)?;
    let attached = Fs::attach(daemon.address(), INSTANCE, ClientOptions::default())?;
    let mounted = mount(attached.clone(), &mnt, &MountOptions::default())?;
    attached.mkdir_all(Path::new("dir"), 0o755)?;
    let stats = daemon.stats();
    let each = |act: &dyn Fn(u64) -> Outcome<()>| -> Outcome<f64> {
        // Connections are opened when first needed; files are closed in the background.
        for i in OPERATIONS..OPERATIONS + WARM_UP {
            act(i)?;
        }
        thread::sleep(SETTLE_TIME);
        let before = count_requests(&stats);
        for i in 0..OPERATIONS {
            act(i)?;
        }
        thread::sleep(SETTLE_TIME);
        Ok((count_requests(&stats) - before) as f64 / OPERATIONS as f64)
    };
    let mode =
        OpenMode { read: true, write: true, truncate: false, descriptor: true, ..OpenMode::NONE };
    let library_create = each(&|i| {
        let path = format!("dir/library{i}");
        drop(attached.create_path(Path::new(&path), 0o644, mode)?);
        Ok(())
    })?;
    let library_stat = each(&|i| {
        let path = format!("dir/library{i}");
        attached.resolve(Path::new(&path), false)?;
        Ok(())
    })?;
    let mount_create = each(&|i| {
        drop(fs::File::create_new(mnt.join(format!("dir/mount{i}")))?);
        Ok(())
    })?;
    let mount_stat = each(&|i| {
        fs::metadata(mnt.join(format!("dir/mount{i}")))?;
        Ok(())
    })?;
    mounted.unmount()?;
    drop(attached);
    daemon.stop()?;
    fs::remove_dir_all(dir)?;
    Ok(RoundTrips { library_stat, library_create, mount_stat, mount_create })
}
