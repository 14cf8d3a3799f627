//! Run a storage daemon on a directory, make an instance, and mount it:
//! `mount <flash directory> <mount point> [capacity in MiB]`. Ends when unmounted from outside, or
//! when its standard input ends.

use forebay_client::{Admin, Fs, MountOptions, Options, mount};
use forebay_store::daemon::{self, Daemon};
use forebay_wire::message::InstanceSpec;
use forebay_wire::{Errno, InstanceId};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flash, at, rest @ ..] = arguments.as_slice() else {
        return Err("usage: mount <flash directory> <mount point> [capacity in MiB]".into());
    };
    let capacity = rest
        .first()
        .map_or(Ok(16 << 10), |text| text.parse::<u64>())?
        << 20;
    let daemon = Daemon::start(daemon::Options::new(flash))?;
    let admin = Admin::connect(daemon.address(), Options::default())?;
    let id = InstanceId(1);
    let spec = InstanceSpec {
        id,
        uid: 0,
        gid: 0,
        mode: 0o777,
        capacity,
        inodes: 10_000_000,
        place: forebay_wire::place::Place::alone(),
    };
    match admin.create_instance(spec) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let fs = Fs::attach(daemon.address(), id, Options::default())?;
    let mounted = mount(fs, Path::new(at), &MountOptions::default())?;
    println!("mounted at {}", mounted.path().display());
    let mut line = String::new();
    while std::io::stdin().read_line(&mut line)? > 0 {}
    mounted.unmount()?;
    daemon.stop()?;
    Ok(())
}
