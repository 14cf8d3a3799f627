//! Sequential small reads and writes over TCP: the library beside the mount, in alternating runs, on one
//! storage node and on three, and reads beside a mount that does not read ahead; and IOR with and without the
//! interception library.
//!
//! usage: cargo bench --package forebay-client --bench small_requests -- [--directory DIRECTORY]
//!        [--reads-only | --writes-only] [--written-mib MIB] [--ior PROGRAM --preload LIBRARY]
#![allow(clippy::unwrap_used, reason = "a failed step ends the benchmark")]

use forebay_client::{Admin, ClientOptions, File, Fs, Mount, MountOptions, NodeAddresses, mount};
use forebay_net::auth::PoolKey;
use forebay_protocol::InstanceId;
use forebay_protocol::message::{InstanceSpec, OpenMode};
use forebay_protocol::placement::Placement;
use forebay_store::daemon::{Daemon, StoreOptions};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

const INSTANCE: InstanceId = InstanceId(1);
const KEY: &[u8] = b"for measurements only";
const BYTES: usize = 64 << 20;
const WRITTEN_MIB: usize = 512;
const PAIRS: usize = 5;
/// Bytes of each read.
const READ_PIECES: [usize; 2] = [4 << 10, 47_008];
/// Bytes of each write.
const WRITE_PIECES: [usize; 3] = [4 << 10, 8 << 10, 47_008];
const STRIPE_BYTES: u64 = 1 << 20;
/// Files that are written one after the other, and the writes of each.
const FILES: usize = 300;
const FILE_WRITES: [usize; 2] = [5, 10];
const FILE_PIECE: usize = 10 << 10;
const READ: OpenMode =
    OpenMode { read: true, write: false, truncate: false, descriptor: false, ..OpenMode::NONE };
const WRITE: OpenMode = OpenMode { write: true, ..READ };
/// Writes of IOR, with `fsync`.
const IOR_WRITES: [(&str, &str); 3] = [
    ("IOR, 4 KiB, 32 MiB", "-w -e -t 4k -b 32m"),
    ("IOR, 47,008 B, 36 MiB", "-w -e -t 47008 -b 47008 -s 800"),
    ("IOR, 47,008 B, 538 MiB", "-w -e -t 47008 -b 47008 -s 12000"),
];

/// MiB/s of requests of `piece` bytes at ascending offsets, and of what follows them.
fn rate(
    total: usize,
    piece: usize,
    mut request: impl FnMut(&mut [u8], u64) -> usize,
    end: impl FnOnce(),
) -> f64 {
    let mut buffer = vec![1; piece];
    let (start, mut done) = (Instant::now(), 0);
    while done < total {
        let length = piece.min(total - done);
        let count = request(&mut buffer[..length], done as u64);
        assert_eq!(count, length);
        done += count;
    }
    end();
    done as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64()
}

/// Medians of alternating runs of programs, and of their ratios to the first one.
fn compare_all(name: &str, programs: &mut [(&str, &mut dyn FnMut() -> f64)]) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let mut rounds: Vec<Vec<f64>> = Vec::new();
    for _ in 0..PAIRS {
        rounds.push(programs.iter_mut().map(|(_, run)| run()).collect());
    }
    let of_program = |(index, (program, _)): (usize, &(&str, _))| {
        let rate = median(rounds.iter().map(|rates| rates[index]).collect());
        let ratio = median(rounds.iter().map(|rates| rates[index] / rates[0]).collect());
        format!("{program} {rate:.0} ({ratio:.1})")
    };
    let rates: Vec<String> = programs.iter().enumerate().map(of_program).collect();
    println!("{name}: {}", rates.join(", "));
}

/// The same of two programs.
fn compare(name: &str, mut by_mount: impl FnMut() -> f64, mut by_library: impl FnMut() -> f64) {
    compare_all(name, &mut [("mount", &mut by_mount), ("library", &mut by_library)]);
}

fn reads(site: &Site, directory: &Path, nodes: usize) {
    let library = &site.library;
    let written = library.create_path(Path::new("file"), 0o644, WRITE).unwrap().file;
    written.write_all_at(&vec![1; BYTES], 0).unwrap();
    drop(written);
    let other_path = directory.join("without");
    fs::create_dir_all(&other_path).unwrap();
    let options = ClientOptions { read_ahead_bytes: 0, ..ClientOptions::default() };
    let other = mount(site.attach(options), &other_path, &MountOptions::default()).unwrap();
    let read = |path: &Path, piece| {
        let file = fs::File::open(path.join("file")).unwrap();
        rate(BYTES, piece, |into, offset| file.read_at(into, offset).unwrap(), || {})
    };
    for piece in READ_PIECES {
        let by_library = &mut || {
            let file = library.open_path(Path::new("file"), READ).unwrap().file;
            rate(BYTES, piece, |into, offset| file.read_at(into, offset).unwrap(), || {})
        };
        let programs: &mut [(&str, &mut dyn FnMut() -> f64)] = &mut [
            ("mount that does not read ahead", &mut || read(&other_path, piece)),
            ("mount", &mut || read(&site.path, piece)),
            ("library", by_library),
        ];
        compare_all(&format!("read {piece} B, nodes: {nodes}"), programs);
    }
    other.unmount().unwrap();
}

fn writes(library: &Fs, path: &Path, nodes: usize) {
    let mib =
        argument("--written-mib").map_or(WRITTEN_MIB, |mib| mib.to_str().unwrap().parse().unwrap());
    let total = mib << 20;
    for piece in WRITE_PIECES {
        let by_mount = || {
            let file = fs::File::create(path.join("by-mount")).unwrap();
            let end = || file.sync_all().unwrap();
            rate(total, piece, |data, offset| file.write_at(data, offset).unwrap(), end)
        };
        let by_library = || {
            let name = Path::new("by-library");
            let file: Arc<File> = library.create_path(name, 0o644, WRITE).unwrap().file;
            let end = || file.fsync(true).unwrap();
            let write = |data: &mut [u8], offset| file.write_at(data, offset).unwrap();
            let rate = rate(total, piece, write, end);
            drop(file);
            library.unlink_path(name).unwrap();
            rate
        };
        compare(&format!("write {piece} B, fsync, nodes: {nodes}"), by_mount, by_library);
    }
}

/// Files of a few writes each, created, written and closed: files in a second.
fn files(library: &Fs, path: &Path, nodes: usize) {
    for writes in FILE_WRITES {
        let data = vec![1; FILE_PIECE];
        let offset = |index| index as u64 * FILE_PIECE as u64;
        let rate = |write: &dyn Fn(&str)| {
            let names: Vec<String> = (0..FILES).map(|index| format!("f{index}")).collect();
            let start = Instant::now();
            names.iter().for_each(|name| write(name));
            let rate = FILES as f64 / start.elapsed().as_secs_f64();
            names.iter().for_each(|name| library.unlink_path(Path::new(name)).unwrap());
            rate
        };
        let by_mount = || {
            rate(&|name| {
                let file = fs::File::create(path.join(name)).unwrap();
                (0..writes).for_each(|index| file.write_all_at(&data, offset(index)).unwrap());
            })
        };
        let by_library = || {
            rate(&|name| {
                let file = library.create_path(Path::new(name), 0o644, WRITE).unwrap().file;
                (0..writes).for_each(|index| file.write_all_at(&data, offset(index)).unwrap());
                file.flush().unwrap();
            })
        };
        let name = format!("files of {writes} writes of {FILE_PIECE} B a second, nodes: {nodes}");
        compare(&name, by_mount, by_library);
    }
}

/// Rate of a run of IOR, MiB/s.
fn ior(program: &Path, options: &str, file: &Path, preload: Option<(&Path, &Path)>) -> f64 {
    let mut command = Command::new(program);
    command.args(options.split(' ')).arg("-o").arg(file);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    if let Some((library, key_file)) = preload {
        command.env("LD_PRELOAD", library).env("FOREBAY_KEY_FILE", key_file);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?} failed: {errors}");
    let row = text.lines().find(|line| line.starts_with("write ")).unwrap();
    row.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn is_given(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

fn argument(name: &str) -> Option<PathBuf> {
    std::env::args().skip_while(|argument| argument != name).nth(1).map(PathBuf::from)
}

fn key() -> PoolKey {
    PoolKey::new(KEY).unwrap()
}

/// Storage nodes with an instance, a client of the library and a mount, all over TCP.
struct Site {
    daemons: Vec<Daemon>,
    library: Fs,
    mount: Mount,
    path: PathBuf,
}

impl Site {
    fn start(directory: &Path, nodes: usize) -> Site {
        let path = directory.join(format!("mnt{nodes}"));
        fs::create_dir_all(&path).unwrap();
        let start = |node| {
            let flash = directory.join(format!("flash{nodes}-{node}"));
            fs::create_dir_all(&flash).unwrap();
            let mut options = StoreOptions::new(flash);
            (options.tcp, options.key) = (Some(([127, 0, 0, 1], 0).into()), Some(key()));
            Daemon::start(options).unwrap()
        };
        let daemons: Vec<Daemon> = (0..nodes).map(start).collect();
        make_instance(&daemons);
        let delayed = ClientOptions { delays_writes: true, ..ClientOptions::default() };
        let library = attach(&daemons, delayed);
        let fs = attach(&daemons, ClientOptions::default());
        let mount = mount(fs, &path, &MountOptions::default()).unwrap();
        Site { daemons, library, mount, path }
    }

    fn attach(&self, options: ClientOptions) -> Fs {
        attach(&self.daemons, options)
    }

    fn end(self) {
        self.mount.unmount().unwrap();
        drop(self.library);
        for daemon in self.daemons {
            daemon.stop().unwrap();
        }
    }
}

fn attach(daemons: &[Daemon], options: ClientOptions) -> Fs {
    let addresses = daemons.iter().map(|daemon| daemon.tcp_address().unwrap()).collect();
    let options = ClientOptions { key: Some(key()), ..options };
    Fs::attach(NodeAddresses(addresses), INSTANCE, options).unwrap()
}

fn make_instance(daemons: &[Daemon]) {
    let peers: Vec<String> = daemons.iter().map(|daemon| daemon.address().to_string()).collect();
    let placements = match peers.len() {
        1 => vec![Placement::single_node()],
        _ => Placement::distributed(STRIPE_BYTES, &peers, [7; 32]),
    };
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    for (daemon, placement) in daemons.iter().zip(placements) {
        let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
        let (mode, capacity, inodes) = (0o755, 4 << 30, 10_000);
        let spec = InstanceSpec { id: INSTANCE, uid, gid, mode, capacity, inodes, placement };
        admin.create_instance(spec).unwrap();
    }
}

fn main() {
    let directory = argument("--directory").unwrap_or_else(std::env::temp_dir);
    let directory = directory.join(format!("forebay-small-requests-{}", std::process::id()));
    println!(
        "sequential small requests over TCP, MiB/s, medians of {PAIRS} alternating runs, and of their ratios \
         to the first"
    );
    if !is_given("--writes-only") {
        for nodes in [1, 3] {
            let site = Site::start(&directory, nodes);
            reads(&site, &directory, nodes);
            site.end();
        }
    }
    fs::create_dir_all(&directory).unwrap();
    for nodes in [1, 3].into_iter().filter(|_| !is_given("--reads-only")) {
        let site = Site::start(&directory.join("writes"), nodes);
        writes(&site.library, &site.path, nodes);
        files(&site.library, &site.path, nodes);
        match (argument("--ior"), argument("--preload")) {
            (Some(program), Some(preload)) => {
                // The loader ignores a library that it does not find.
                let preload = preload.canonicalize();
                let preload =
                    preload.expect("--preload LIBRARY: a path, from crates/buffer/client");
                let key_file = directory.join("key");
                fs::write(&key_file, KEY).unwrap();
                fs::set_permissions(&key_file, Permissions::from_mode(0o600)).unwrap();
                for (name, options) in IOR_WRITES {
                    let file = site.path.join("ior");
                    let by_mount = || ior(&program, options, &file, None);
                    let by_library = || ior(&program, options, &file, Some((&preload, &key_file)));
                    compare(&format!("{name}, nodes: {nodes}"), by_mount, by_library);
                }
            }
            _ => println!("IOR: skipped, without --ior PROGRAM --preload LIBRARY"),
        }
        site.end();
    }
    fs::remove_dir_all(&directory).unwrap();
}
