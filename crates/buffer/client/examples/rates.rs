//! How fast the library and the mount are, beside the file system underneath, in pairs in one run:
//! `rates <directory> [rounds]`. Two client processes use one storage daemon in a third, and then
//! an instance striped over two daemons in a fourth and fifth.

use forebay_client::{ClientOptions, Fs, MountOptions, NodeAddresses, StripedAdmin, mount};
use forebay_net::auth::PoolKey;
use forebay_protocol::address::Address;
use forebay_protocol::message::{InstanceSpec, OpenMode, SetAttr};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, Ino, InstanceId};
use forebay_store::daemon::{self, Daemon};
use std::cell::Cell;
use std::error::Error;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const INSTANCE: InstanceId = InstanceId(1);
const CLIENTS: u64 = 2;
const MIB: u64 = 1 << 20;
/// The daemons' directories; the second and the third share an instance.
const FLASH: [&str; 3] = ["flash", "flash-a", "flash-b"];

fn port(daemon: usize) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 17_171 + daemon as u16)
}

/// The addresses of the instance on one daemon or on two.
fn nodes(dir: &Path, two: bool, tcp: bool) -> NodeAddresses {
    let daemons = if two { 1..3 } else { 0..1 };
    let address = |daemon: usize| match tcp {
        true => Address::Tcp(port(daemon)),
        false => Address::Unix(dir.join(FLASH[daemon]).join("socket")),
    };
    NodeAddresses(daemons.map(address).collect())
}

fn key() -> std::result::Result<PoolKey, Errno> {
    PoolKey::new(b"for measurements only")
}

/// What one client process does in one measurement. Returns operations and bytes.
fn work(case: &str, dir: &Path, me: u64) -> Result<(u64, u64, f64)> {
    let (place, what) = case.split_once(' ').ok_or("case")?;
    let (place, two) = match place.strip_suffix("-two") {
        Some(place) => (place, true),
        None => (place, false),
    };
    let library = matches!(place, "library" | "tcp");
    let started = Cell::new(Instant::now());
    // Only where it is wanted: the mount may cache as long as it is alone with the instance, and
    // whoever attaches then waits until its cache has expired, which is not measured here.
    let attach = || {
        let options = ClientOptions {
            key: Some(key()?),
            ..ClientOptions::default()
        };
        let fs = Fs::attach(nodes(dir, two, place == "tcp"), INSTANCE, options)?;
        started.set(Instant::now());
        Ok::<Fs, Errno>(fs)
    };
    let mode = OpenMode {
        read: true,
        write: true,
        truncate: false,
        descriptor: place == "library",
    };
    let under = match place {
        "mount" if two => dir.join("mnt-two"),
        "mount" => dir.join("mnt"),
        _ => dir.join("base"),
    };
    let count = 40_000;
    let home = format!("{place}{me}");
    let name = |i: u64| format!("{me}-{i}");
    match (place, what) {
        ("library" | "tcp", "create") => {
            let fs = attach()?;
            let home = match fs.mkdir(Ino::ROOT, home.as_bytes(), 0o755) {
                Err(Errno::EEXIST) => fs.lookup(Ino::ROOT, home.as_bytes())?,
                other => other?,
            };
            for i in 0..count {
                let kind =
                    forebay_protocol::message::NewInode::Node(forebay_protocol::FileKind::File, 0);
                fs.make_inode(home.ino, name(i).as_bytes(), kind, 0o644)?;
            }
            return Ok((count, 0, started.get().elapsed().as_secs_f64()));
        }
        ("library" | "tcp", "stat" | "unlink") => {
            let fs = attach()?;
            let home = fs.lookup(Ino::ROOT, home.as_bytes())?;
            for i in 0..count {
                let name = name(i);
                match what {
                    "stat" => assert!(fs.lookup(home.ino, name.as_bytes())?.nlink == 1),
                    _ => fs.unlink(home.ino, name.as_bytes())?,
                }
            }
            return Ok((count, 0, started.get().elapsed().as_secs_f64()));
        }
        (_, "create" | "stat" | "unlink") => {
            let home = under.join(home);
            let _ = std::fs::create_dir(&home);
            let count = count / 8;
            for i in 0..count {
                let path = home.join(name(i));
                match what {
                    "create" => drop(File::create(path)?),
                    "stat" => assert!(std::fs::metadata(path)?.is_file()),
                    _ => std::fs::remove_file(path)?,
                }
            }
            return Ok((count, 0, started.get().elapsed().as_secs_f64()));
        }
        _ => {}
    }
    let shared = what.ends_with("shared");
    let (size, total) = match what.split(' ').nth(1).ok_or("size")? {
        "1M" | "fresh" => (MIB, 512 * MIB),
        "4k" => (4096, 64 * MIB),
        "47008" => (47_008, 47_008 * 8000),
        _ => return Err("size".into()),
    };
    let file_name = if shared {
        "shared".to_owned()
    } else {
        format!("data{me}")
    };
    let ours = match library {
        true => Some(
            attach()?
                .create(Ino::ROOT, file_name.as_bytes(), 0o644, false, mode)?
                .file,
        ),
        false => None,
    };
    let mut options = File::options();
    let theirs = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(under.join(&file_name))?;
    let fresh = what.ends_with("fresh");
    if fresh {
        theirs.set_len(0)?;
        if let Some(file) = &ours {
            let set = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            attach()?.set_attr(file.ino(), None, set)?;
        }
    }
    let mut buffer = vec![me as u8 + 1; size as usize];
    let mut operations = 0;
    for i in 0..total / size {
        let offset = if shared {
            (i * CLIENTS + me) * size
        } else {
            i * size
        };
        match (&ours, what.starts_with("write")) {
            (Some(file), true) => file.write_all_at(&buffer, offset)?,
            (Some(file), false) => drop(file.read_at(&mut buffer, offset)?),
            (None, true) => theirs.write_all_at(&buffer, offset)?,
            (None, false) => theirs.read_exact_at(&mut buffer, offset)?,
        }
        operations += 1;
    }
    match &ours {
        Some(file) if fresh => file.fsync(false)?,
        None if fresh => theirs.sync_all()?,
        _ => {}
    }
    Ok((
        operations,
        operations * size,
        started.get().elapsed().as_secs_f64(),
    ))
}

/// Run the client processes of one measurement; print what they did together.
fn measure(case: &str, dir: &Path) -> Result<f64> {
    let me = std::env::current_exe()?;
    let children: Vec<_> = (0..CLIENTS)
        .map(|number| {
            Command::new(&me)
                .args(["client", case])
                .arg(dir)
                .arg(number.to_string())
                .stdout(Stdio::piped())
                .spawn()
        })
        .collect::<std::io::Result<_>>()?;
    let (mut operations, mut bytes, mut longest) = (0.0, 0.0, 0.0f64);
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let numbers: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
        let [ops, size, seconds] = numbers[..] else {
            return Err(format!("{case} failed").into());
        };
        operations += ops;
        bytes += size;
        longest = longest.max(seconds);
    }
    Ok(
        if bytes > 0.0 && (case.contains(" 1M") || case.contains("fresh")) || case.contains("47008")
        {
            bytes / longest / MIB as f64
        } else {
            operations / longest
        },
    )
}

fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks: u64 = fields.get(11).ok_or("stat")?.parse::<u64>()?
        + fields.get(12).ok_or("stat")?.parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["client", case, dir, number] => {
            let (operations, bytes, seconds) = work(case, Path::new(dir), number.parse()?)?;
            println!("{operations} {bytes} {seconds}");
            Ok(())
        }
        ["daemon", dir, number] => {
            let mut options = daemon::StoreOptions::new(dir);
            (options.tcp, options.key) = (Some(port(number.parse()?)), Some(key()?));
            Daemon::start(options)?.wait()?;
            Ok(())
        }
        [dir] => compare(Path::new(dir), 3),
        [dir, rounds] => compare(Path::new(dir), rounds.parse()?),
        _ => Err("usage: rates <directory> [rounds]".into()),
    }
}

const PLACES: [&str; 7] = [
    "base",
    "library",
    "library-two",
    "mount",
    "mount-two",
    "tcp",
    "tcp-two",
];

fn start(dir: &Path, number: usize) -> Result<Child> {
    let flash = dir.join(FLASH[number]);
    std::fs::create_dir_all(&flash)?;
    let server = Command::new(std::env::current_exe()?)
        .arg("daemon")
        .arg(&flash)
        .arg(number.to_string())
        .spawn()?;
    while !flash.join("socket").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

fn make(nodes: &NodeAddresses) -> Result<()> {
    let spec = InstanceSpec {
        id: INSTANCE,
        uid: 0,
        gid: 0,
        mode: 0o777,
        capacity: 64 << 30,
        inodes: 10_000_000,
        placement: Placement::single_node(),
    };
    let admin = StripedAdmin::connect(nodes.clone(), &ClientOptions::default())?;
    Ok(admin.create_instance(&spec, MIB)?)
}

fn compare(dir: &Path, rounds: u32) -> Result<()> {
    for part in ["base", "mnt", "mnt-two"] {
        std::fs::create_dir_all(dir.join(part))?;
    }
    let mut servers = Vec::new();
    for number in 0..FLASH.len() {
        servers.push(start(dir, number)?);
    }
    let mut mounts = Vec::new();
    for (two, at) in [(false, "mnt"), (true, "mnt-two")] {
        let nodes = nodes(dir, two, false);
        make(&nodes)?;
        let fs = Fs::attach(nodes, INSTANCE, ClientOptions::default())?;
        mounts.push(mount(fs, &dir.join(at), &MountOptions::default())?);
    }
    print!("{:<18}", "");
    for place in PLACES {
        print!("{place:>12}");
    }
    println!("  (MiB/s, or operations/s; best of {rounds})");
    let cases = [
        "create",
        "stat",
        "unlink",
        "write fresh",
        "write 1M",
        "read 1M",
        "write 4k",
        "read 4k",
        "write 47008 shared",
        "read 47008 shared",
    ];
    for what in cases {
        print!("{what:<18}");
        let mut best = [0.0f64; PLACES.len()];
        let mut cost = 0.0;
        let once = matches!(what, "create" | "unlink");
        for _ in 0..if once { 1 } else { rounds } {
            for (place, best) in PLACES.iter().zip(&mut best) {
                let before = cpu(servers[0].id())?;
                *best = best.max(measure(&format!("{place} {what}"), dir)?);
                if *place == "library" {
                    cost = (cpu(servers[0].id())? - before).as_secs_f64() * 1e6 / 80_000.0;
                }
            }
        }
        for rate in best {
            print!("{rate:>12.0}");
        }
        print!("  two daemons beside one:");
        for (one, two) in [(1, 2), (3, 4), (5, 6)] {
            print!(" {:.2}", best[two] / best[one]);
        }
        if matches!(what, "create" | "stat" | "unlink") {
            print!(", {cost:.1} us of daemon CPU each");
        }
        println!();
    }
    for mounted in mounts {
        mounted.unmount()?;
    }
    for mut server in servers {
        server.kill()?;
        server.wait()?;
    }
    for part in FLASH.iter().chain(&["base"]) {
        std::fs::remove_dir_all(dir.join(part))?;
    }
    Ok(())
}
