//! How fast staging is, beside `cp -r` of the same data on the same file system in the same run:
//! `cargo run --release -p forebay-stage --example staging_rates <directory> [rounds] [GiB] [files]`.
//!
//! `<directory>` stands for both ends, the flash and the parallel file system. Times include
//! putting everything on stable storage, for `cp` as for staging. Times of the processors are those
//! of this process with the storage daemon in it, and of `cp`: they say more than the rates where
//! others keep the machine busy. The small files, with symbolic
//! and hard links among them, are compared one by one when they are back.

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use forebay_client::{Admin, Fs};
use forebay_stage::{Item, Options, Place, Progress, Report, Request, Space, Verify, What, stage};
use forebay_store::daemon::{self, Daemon};
use forebay_wire::InstanceId;
use forebay_wire::message::InstanceSpec;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MIB: f64 = 1_048_576.0;

/// Waits until what others wrote is out of the way, and forgets what is cached.
fn settle() {
    rustix::fs::sync();
    // Only root may; without it reads come from memory on both sides alike.
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

/// How long something took.
#[derive(Clone, Copy)]
struct Took {
    seconds: f64,
    /// Of the processors.
    worked: f64,
}

/// Seconds that processors have worked for this process and those it has waited for.
fn worked() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(4);
    let ticks: Vec<f64> = ticks.flat_map(str::parse).collect();
    Ok(ticks.iter().sum::<f64>() / rustix::param::clock_ticks_per_second() as f64)
}

/// What something takes.
fn timed<T>(what: impl FnOnce() -> Result<T>) -> Result<(Took, T)> {
    settle();
    let (begun, before) = (Instant::now(), worked()?);
    let value = what()?;
    let took = Took {
        seconds: begun.elapsed().as_secs_f64(),
        worked: worked()? - before,
    };
    Ok((took, value))
}

fn copy(from: &Path, to: &Path) -> Result<Took> {
    let (took, ()) = timed(|| {
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
        rustix::fs::syncfs(fs::File::open(to)?)?;
        if copied.success() {
            Ok(())
        } else {
            Err("cp failed".into())
        }
    })?;
    Ok(took)
}

struct Bench {
    space: Arc<Space>,
    verify: Verify,
    journal: std::path::PathBuf,
}

impl Bench {
    fn stage(&self, source: Place, target: Place) -> Result<(Took, Report)> {
        let item = Item {
            what: What::Directory,
            source,
            target,
        };
        let request = Request { items: vec![item] };
        let options = Options {
            verify: self.verify,
            journal: Some(self.journal.clone()),
            ..Options::default()
        };
        let _ = fs::remove_file(&self.journal);
        timed(|| Ok(stage(&request, &options, &Progress::new())?))
    }

    /// Stages `from` in, and out again to `to`.
    fn there_and_back(&self, from: &Path, to: &Path) -> Result<(Took, Took, Report)> {
        let inside = || Place::inside(&self.space, "data");
        let (to_buffer, _) = self.stage(Place::outside(from), inside())?;
        let (back, report) = self.stage(inside(), Place::outside(to))?;
        Ok((to_buffer, back, report))
    }
}

fn large(directory: &Path, gibibytes: u64) -> Result<()> {
    fs::create_dir_all(directory)?;
    let mut state = 88_172_645_463_325_252u64;
    for index in 0..gibibytes {
        let mut file = fs::File::create(directory.join(format!("large{index}")))?;
        let mut block = vec![0u8; 1 << 20];
        for _ in 0..1024 {
            for word in block.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            file.write_all(&block)?;
        }
    }
    Ok(())
}

/// Small files, a thousand to a directory; every twentieth is a symbolic link, every twentieth a
/// hard link.
fn small(directory: &Path, files: u64) -> Result<()> {
    for index in 0..files {
        let home = directory.join(format!("d{}", index / 1000));
        if index % 1000 == 0 {
            fs::create_dir_all(&home)?;
        }
        let path = home.join(format!("f{index}"));
        match index % 20 {
            5 => symlink(format!("f{}", index - 1), path)?,
            6 => fs::hard_link(home.join(format!("f{}", index - 2)), path)?,
            _ => fs::write(path, format!("{index}\n").repeat((index % 700) as usize))?,
        }
    }
    Ok(())
}

/// Compares two trees file by file: kind, contents, permissions, owners, times, which names are
/// the same file. Returns how many entries were compared.
fn compare(a: &Path, b: &Path) -> Result<u64> {
    let mut open = vec![(a.to_owned(), b.to_owned())];
    let mut names: HashMap<u64, u64> = HashMap::new();
    let mut compared = 0;
    while let Some((a, b)) = open.pop() {
        let (is, was) = (fs::symlink_metadata(&b)?, fs::symlink_metadata(&a)?);
        let about = |m: &fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
        let same = if was.is_symlink() {
            fs::read_link(&a)? == fs::read_link(&b)?
        } else if was.is_dir() {
            for entry in fs::read_dir(&a)? {
                let name = entry?.file_name();
                open.push((a.join(&name), b.join(&name)));
            }
            about(&is) == about(&was) && fs::read_dir(&a)?.count() == fs::read_dir(&b)?.count()
        } else {
            let one_file = *names.entry(was.ino()).or_insert(is.ino()) == is.ino();
            let linked = one_file && is.nlink() == was.nlink();
            linked && about(&is) == about(&was) && fs::read(&a)? == fs::read(&b)?
        };
        if !same {
            return Err(format!("{} is not what {} is", b.display(), a.display()).into());
        }
        compared += 1;
    }
    Ok(compared)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let under = arguments.next().ok_or("name a directory to measure in")?;
    let mut number = |default: u64| -> Result<u64> {
        Ok(arguments.next().map_or(Ok(default), |text| text.parse())?)
    };
    let (rounds, gibibytes, files) = (number(3)?, number(2)?, number(200_000)?);
    let home = Path::new(&under).join(format!("forebay-rates-{}", std::process::id()));
    fs::create_dir_all(&home)?;
    let outcome = measure(&home, rounds, gibibytes, files);
    fs::remove_dir_all(&home)?;
    outcome
}

fn measure(home: &Path, rounds: u64, gibibytes: u64, files: u64) -> Result<()> {
    let path = |name: &str| home.join(name);
    let daemon = Daemon::start(daemon::Options::new(path("flash")))?;
    let admin = Admin::connect(daemon.address(), forebay_client::Options::default())?;
    println!(
        "{:20} {:>10} {:>10} {:>10} {:>8} {:>8} {:>24}",
        "MiB/s, or files/s", "cp -a", "in", "out", "in/cp", "out/cp", "processor s: cp, in, out"
    );
    let mut number = 0;
    for (what, many) in [("large", false), ("small", true)] {
        if many && files == 0 || !many && gibibytes == 0 {
            continue;
        }
        let source = path(what);
        if many {
            small(&source, files)?;
        } else {
            large(&source, gibibytes)?;
        }
        for round in 0..rounds {
            for verify in [Verify::Checksum, Verify::ReadBack, Verify::Off] {
                number += 1;
                let spec = InstanceSpec {
                    id: InstanceId(number),
                    uid: rustix::process::geteuid().as_raw(),
                    gid: rustix::process::getegid().as_raw(),
                    mode: 0o700,
                    capacity: (gibibytes + 8) << 30,
                    inodes: 2 * files + 1_000_000,
                    place: forebay_wire::place::Place::alone(),
                };
                admin.create_instance(spec)?;
                let fs = Fs::attach(
                    daemon.address(),
                    InstanceId(number),
                    forebay_client::Options::default(),
                )?;
                fs.mkdir_all(Path::new("striped"), 0o755)?;
                let bench = Bench {
                    space: Space::new(fs, Path::new("striped"), "$DW_JOB_STRIPED")?,
                    verify,
                    journal: path("journal"),
                };
                let (copied, staged) = (path("copied"), path("staged"));
                let cp = copy(&source, &copied)?;
                let (there, back, report) = bench.there_and_back(&source, &staged)?;
                let amount = if many {
                    (report.files + report.symbolic_links + report.hard_links) as f64
                } else {
                    report.bytes as f64 / MIB
                };
                println!(
                    "{:20} {:10.0} {:10.0} {:10.0} {:8.2} {:8.2} {:8.2}{:8.2}{:8.2}",
                    format!("{what} {verify:?} {round}"),
                    amount / cp.seconds,
                    amount / there.seconds,
                    amount / back.seconds,
                    cp.seconds / there.seconds,
                    cp.seconds / back.seconds,
                    cp.worked,
                    there.worked,
                    back.worked
                );
                if round == 0 {
                    let compared = compare(&source, &staged)?;
                    println!("{compared} files, links and directories are back as they were");
                }
                drop(bench);
                admin.remove_instance(InstanceId(number), true)?;
                fs::remove_dir_all(&copied)?;
                fs::remove_dir_all(&staged)?;
            }
        }
        fs::remove_dir_all(&source)?;
    }
    daemon.stop()?;
    Ok(())
}
