//! Sequential small reads over TCP: the library beside the mount, in alternating runs.
//!
//! usage: cargo bench --package forebay-client --bench small_reads
#![allow(clippy::unwrap_used, reason = "a failed step ends the benchmark")]

use forebay_client::{Admin, ClientOptions, Fs, MountOptions, mount};
use forebay_net::auth::PoolKey;
use forebay_protocol::InstanceId;
use forebay_protocol::message::{InstanceSpec, OpenMode};
use forebay_protocol::placement::Placement;
use forebay_store::daemon::{Daemon, StoreOptions};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const INSTANCE: InstanceId = InstanceId(1);
const BYTES: usize = 64 << 20;
const PAIRS: usize = 5;
const READ: OpenMode = OpenMode { read: true, write: false, truncate: false, descriptor: false };
const WRITE: OpenMode = OpenMode { write: true, ..READ };

/// MiB/s of reads of `piece` bytes at ascending offsets.
fn rate(piece: usize, mut read: impl FnMut(&mut [u8], u64) -> usize) -> f64 {
    let mut buffer = vec![0; piece];
    let (start, mut done) = (Instant::now(), 0);
    while done < BYTES {
        let count = read(&mut buffer, done as u64);
        assert!(count == piece || done + count == BYTES);
        done += count;
    }
    done as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64()
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let key = || PoolKey::new(b"for measurements only").unwrap();
    let directory =
        std::env::temp_dir().join(format!("forebay-small-reads-{}", std::process::id()));
    let path = directory.join("mnt");
    fs::create_dir_all(directory.join("flash")).unwrap();
    fs::create_dir_all(&path).unwrap();
    let mut options = StoreOptions::new(directory.join("flash"));
    (options.tcp, options.key) = (Some(([127, 0, 0, 1], 0).into()), Some(key()));
    let daemon = Daemon::start(options).unwrap();
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    admin
        .create_instance(InstanceSpec {
            id: INSTANCE,
            uid,
            gid,
            mode: 0o755,
            capacity: 1 << 30,
            inodes: 100,
            placement: Placement::single_node(),
        })
        .unwrap();
    let attach = || {
        let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
        Fs::attach(daemon.tcp_address().unwrap(), INSTANCE, options).unwrap()
    };
    let library = attach();
    let written = library.create_path(Path::new("file"), 0o644, WRITE).unwrap().file;
    written.write_all_at(&vec![1; BYTES], 0).unwrap();
    drop(written);
    let mounted = mount(attach(), &path, &MountOptions::default()).unwrap();
    println!("sequential reads over TCP, MiB/s, medians of {PAIRS} pairs");
    for piece in [4 << 10, 47_008] {
        let (mut by_library, mut by_mount) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let file = library.open_path(Path::new("file"), READ).unwrap().file;
            by_library.push(rate(piece, |into, offset| file.read_at(into, offset).unwrap()));
            let file = fs::File::open(path.join("file")).unwrap();
            by_mount.push(rate(piece, |into, offset| file.read_at(into, offset).unwrap()));
        }
        let (library, mount) = (median(&mut by_library), median(&mut by_mount));
        println!("{piece} B: mount {mount:.0}, library {library:.0}, ratio {:.1}", library / mount);
    }
    mounted.unmount().unwrap();
    drop((library, admin));
    daemon.stop().unwrap();
    fs::remove_dir_all(&directory).unwrap();
}
