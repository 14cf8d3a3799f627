//! The cases, their contestants and targets.

use crate::command_line::Options;
use crate::process::Process;
use crate::report::{self, Line, Target, median};
use crate::site::{Place, Setup, Site};
use crate::work::{MIB, SyncTime, Task, send_stream};
use crate::{Outcome, round_trips};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use Place::{
    Base, Batches, BatchesTwo, Gluster, Library, LibraryTwo, Mount, Stream, Tcp, TcpBatches,
    TcpEncrypted, TcpIntegrity, TcpTwo,
};
use SyncTime::{AtEnd, EachWrite, Never};
use Target::{AtLeast, AtMost};

/// The unit of a rate.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Operations,
}

struct Case {
    name: &'static str,
    clients: u64,
    task: Task,
    unit: Unit,
    places: Contestants,
    /// Data are read from the disk, not from the page cache.
    cold: bool,
}

/// Contestants, each with its target: for the ratio to the first one, if the target is at most 1,
/// otherwise for the rate.
type Contestants = &'static [(Place, Target)];

const NONE: Target = Target::None;
const DISK_DATA: Contestants =
    &[(Base, NONE), (Library, AtLeast(0.9)), (Mount, AtLeast(0.7)), (Gluster, NONE)];
const LOCAL: Contestants = &[(Base, NONE), (Library, NONE), (Mount, NONE), (Gluster, NONE)];
const BASE_AND_TCP: Contestants = &[(Base, NONE), (Tcp, NONE)];
const TCP_MODES: Contestants = &[
    (Stream, NONE),
    (Tcp, AtLeast(0.8)),
    (TcpIntegrity, NONE),
    (TcpEncrypted, NONE),
    (TcpTwo, NONE),
];
/// Metadata operations, with the target of the library: requested one by one, and in batches.
const fn metadata(target: Target) -> [(Place, Target); 7] {
    [
        (Base, NONE),
        (Library, target),
        (Batches, target),
        (Tcp, NONE),
        (TcpBatches, NONE),
        (Mount, NONE),
        (Gluster, NONE),
    ]
}

const CREATES: Contestants = &metadata(AtLeast(60_000.0));
const STATS: Contestants = &metadata(AtLeast(80_000.0));
const UNLINKS: Contestants = &metadata(NONE);
const SMALL_WRITES: Contestants = &[
    (Base, NONE),
    (Library, AtLeast(15_000.0)),
    (Mount, AtLeast(15_000.0)),
    (Tcp, AtLeast(15_000.0)),
    (Gluster, NONE),
];
const SHARED_WRITES: Contestants =
    &[(Base, NONE), (Library, AtLeast(1000.0)), (Mount, AtLeast(1000.0)), (Tcp, NONE)];
const SHARED_READS: Contestants = &[(Base, NONE), (Library, NONE), (Mount, NONE), (Tcp, NONE)];
const TWO_DAEMONS: Contestants = &[(Library, NONE), (LibraryTwo, AtLeast(0.95))];
const TWO_DAEMONS_BATCHES: Contestants = &[(Batches, NONE), (BatchesTwo, AtLeast(0.95))];

const fn write(size: u64, count: u64, shared: bool, sync: SyncTime) -> Task {
    let fresh = matches!(sync, AtEnd);
    Task::Write { size, count, shared, fresh, sync }
}

const fn read(size: u64, count: u64, shared: bool) -> Task {
    Task::Read { size, count, shared }
}

const fn bytes(name: &'static str, clients: u64, task: Task, places: Contestants) -> Case {
    Case { name, clients, task, unit: Unit::Bytes, places, cold: false }
}

const fn operations(name: &'static str, clients: u64, task: Task, places: Contestants) -> Case {
    Case { name, clients, task, unit: Unit::Operations, places, cold: false }
}

impl Case {
    const fn cold(self) -> Case {
        Case { cold: true, ..self }
    }
}

/// The size of a transfer of IO500's `ior-hard`.
const HARD: u64 = 47_008;

const DISK: [Case; 5] = [
    bytes("disk: write 1 MiB, then fsync", 1, write(MIB, 1024, false, AtEnd), DISK_DATA).cold(),
    bytes("disk: read 1 MiB", 1, read(MIB, 1024, false), DISK_DATA).cold(),
    bytes("disk: write 4 MiB over TCP, fsync", 4, write(4 * MIB, 64, false, AtEnd), BASE_AND_TCP)
        .cold(),
    bytes("disk: read 4 MiB over TCP", 4, read(4 * MIB, 64, false), BASE_AND_TCP).cold(),
    operations("disk: write 4 KiB, fdatasync each", 2, write(4096, 512, false, EachWrite), LOCAL),
];

const MEMORY: [Case; 13] = [
    bytes("tmpfs: write 1 MiB over TCP", 1, write(MIB, 1024, false, Never), TCP_MODES),
    bytes("tmpfs: read 1 MiB over TCP", 1, read(MIB, 1024, false), TCP_MODES),
    bytes("tmpfs: write 1 MiB", 2, write(MIB, 512, false, Never), LOCAL),
    bytes("tmpfs: read 1 MiB", 2, read(MIB, 512, false), LOCAL),
    bytes("tmpfs: write 1 MiB, two daemons", 2, write(MIB, 512, false, Never), TWO_DAEMONS),
    operations("tmpfs: create", 2, Task::Create(20_000), CREATES),
    operations("tmpfs: stat", 2, Task::Stat(20_000), STATS),
    operations("tmpfs: unlink", 2, Task::Unlink(20_000), UNLINKS),
    operations("tmpfs: 2 daemons, create", 4, Task::Create(10_000), TWO_DAEMONS),
    operations("tmpfs: 2 daemons, batches", 4, Task::Create(40_000), TWO_DAEMONS_BATCHES),
    operations("tmpfs: write 4 KiB", 2, write(4096, 16_384, false, Never), SMALL_WRITES),
    bytes("tmpfs: write 47,008 B, one file", 4, write(HARD, 4_000, true, Never), SHARED_WRITES),
    bytes("tmpfs: read 47,008 B, one file", 4, read(HARD, 4_000, true), SHARED_READS),
];

impl Task {
    fn divided_by(mut self, divisor: u64) -> Task {
        let (Task::Create(count)
        | Task::Stat(count)
        | Task::Unlink(count)
        | Task::Write { count, .. }
        | Task::Read { count, .. }) = &mut self;
        *count = (*count / divisor).max(1);
        self
    }

    fn operations(self) -> u64 {
        let (Task::Create(count)
        | Task::Stat(count)
        | Task::Unlink(count)
        | Task::Write { count, .. }
        | Task::Read { count, .. }) = self;
        count
    }

    fn bytes(self) -> u64 {
        match self {
            Task::Write { size, count, .. } | Task::Read { size, count, .. } => size * count,
            Task::Create(_) | Task::Stat(_) | Task::Unlink(_) => 0,
        }
    }

    /// The task that the same clients must have completed before, so that files exist.
    fn prerequisite(self) -> Option<Task> {
        match self {
            Task::Stat(count) | Task::Unlink(count) => Some(Task::Create(count)),
            Task::Read { size, count, shared } => Some(write(size, count, shared, AtEnd)),
            Task::Create(_) | Task::Write { .. } => None,
        }
    }

    /// The files that the task creates: bytes of a write, their number, and whether in one file.
    fn created_files(self) -> Option<(u64, u64, bool)> {
        match self {
            Task::Create(count) => Some((0, count, false)),
            Task::Write { size, count, shared, .. } => Some((size, count, shared)),
            Task::Stat(_) | Task::Unlink(_) | Task::Read { .. } => None,
        }
    }

    /// A name can be created and removed only once.
    fn is_repeatable(self) -> bool {
        !matches!(self, Task::Create(_) | Task::Unlink(_))
    }
}

/// A run of the benchmark.
struct Run<'a> {
    options: &'a Options,
    /// All counts are divided by this.
    divisor: u64,
    lines: Vec<Line>,
}

/// Measures and prints all cases.
pub fn measure_all(options: &Options, divisor: u64, setup: Setup) -> Outcome<()> {
    let mut run = Run { options, divisor, lines: Vec::new() };
    report::print_heading();
    for (parent, cases, memory) in
        [(&options.disk, &DISK[..], false), (&options.memory, &MEMORY[..], true)]
    {
        let selected: Vec<&Case> =
            cases.iter().filter(|case| case.name.contains(&options.only)).collect();
        if selected.is_empty() {
            continue;
        }
        let site = Site::start(parent, setup)?;
        let mut completed: Vec<(u64, Task)> = Vec::new();
        for case in selected {
            let is_completed = |needed: &Task| {
                let same = |(clients, task): &(u64, Task)| {
                    *clients == case.clients && task.created_files() == needed.created_files()
                };
                completed.iter().any(same)
            };
            if let Some(needed) = case.task.prerequisite().filter(|needed| !is_completed(needed)) {
                run.prepare(case, needed, &site)?;
                completed.push((case.clients, needed));
            }
            run.measure_case(case, &site)?;
            completed.push((case.clients, case.task));
        }
        if memory {
            run.measure_idle_daemons(&site)?;
        }
    }
    if "round trips".contains(&options.only) {
        run.count_round_trips(&options.memory)?;
    }
    report::write_json("buffer", &run.lines, &options.json)?;
    println!("written to {}", options.json.display());
    Ok(())
}

/// The available contestants of a case.
fn contestants(case: &Case, site: &Site) -> impl Iterator<Item = (Place, Target)> {
    let gluster = site.gluster.is_some();
    case.places.iter().copied().filter(move |(place, _)| *place != Gluster || gluster)
}

/// The task at `place`: metadata operations through FUSE are slow, so fewer are measured there.
fn task_at(place: Place, task: Task) -> Task {
    let is_slow = matches!(place, Mount | Gluster) && task.bytes() == 0;
    if is_slow { task.divided_by(10) } else { task }
}

impl Run<'_> {
    fn print(&mut self, line: Line) {
        report::print_line(&line);
        self.lines.push(line);
    }

    fn print_figure(
        &mut self,
        case: &str,
        who: &str,
        (measured, unit): (f64, &'static str),
        target: Target,
    ) {
        let (case, who) = (case.to_owned(), who.to_owned());
        self.print(Line { case, who, measured, unit, ratio: None, target });
    }

    /// Completes a prerequisite that `--only` has left out, at all places of the case.
    fn prepare(&self, case: &Case, needed: Task, site: &Site) -> Outcome<()> {
        for place in contestants(case, site).map(|(place, _)| place) {
            if place != Stream {
                let task = task_at(place, needed.divided_by(self.divisor));
                site.measure(place, task, case.clients)?;
            }
        }
        Ok(())
    }

    fn measure_case(&mut self, case: &Case, site: &Site) -> Outcome<()> {
        let task = case.task.divided_by(self.divisor);
        let places: Vec<(Place, Target)> = contestants(case, site).collect();
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); places.len()];
        let mut cpu_us: BTreeMap<Place, Vec<f64>> = BTreeMap::new();
        let rounds = if task.is_repeatable() { self.options.rounds } else { 1 };
        for _ in 0..rounds {
            for ((place, _), rates) in places.iter().zip(&mut rates) {
                if case.cold {
                    site.evict()?;
                }
                let before = site.daemon_cpu()?;
                let task = task_at(*place, task);
                let seconds = match place {
                    Stream => measure_stream(task.bytes()),
                    place => site.measure(*place, task, case.clients),
                };
                let seconds = seconds.unwrap_or_else(|error| {
                    eprintln!("{}: {} FAILED: {error}", case.name, place.name());
                    f64::NAN
                });
                let operations = (task.operations() * case.clients) as f64;
                let is_library = !matches!(place, Base | Mount | Gluster | Stream);
                if is_library && task.bytes() == 0 {
                    let cpu = site.daemon_cpu()?.saturating_sub(before);
                    cpu_us.entry(*place).or_default().push(cpu.as_secs_f64() * 1e6 / operations);
                }
                rates.push(match case.unit {
                    Unit::Bytes => (task.bytes() * case.clients) as f64 / 1e6 / seconds,
                    Unit::Operations => operations / seconds,
                });
            }
        }
        let first_rates = rates.first().cloned().unwrap_or_default();
        for (index, ((place, target), rates)) in places.iter().zip(&rates).enumerate() {
            let ratios = rates.iter().zip(&first_rates).map(|(rate, first)| rate / first);
            let first = places.first().filter(|_| index > 0);
            self.print(Line {
                case: case.name.to_owned(),
                who: place.name().to_owned(),
                measured: median(rates.clone()),
                unit: match case.unit {
                    Unit::Bytes => "MB/s",
                    Unit::Operations => "/s",
                },
                ratio: first.map(|(first, _)| (median(ratios.collect()), first.name())),
                target: *target,
            });
        }
        for (place, cpu_us) in cpu_us {
            let target = match place {
                Library | Batches => AtMost(12.0),
                _ => NONE,
            };
            let name = format!("{}, daemon's CPU", case.name);
            self.print_figure(&name, place.name(), (median(cpu_us), "us"), target);
        }
        Ok(())
    }

    /// CPU use of idle daemons with a mount attached.
    fn measure_idle_daemons(&mut self, site: &Site) -> Outcome<()> {
        const TIME: Duration = Duration::from_secs(4);
        // Earlier changes become durable within a second, and leases expire.
        std::thread::sleep(Duration::from_secs(3));
        let (before, started) = (site.daemon_cpu()?, Instant::now());
        std::thread::sleep(TIME);
        let used = (site.daemon_cpu()? - before).as_secs_f64();
        let percent = 100.0 * used / started.elapsed().as_secs_f64();
        self.print_figure("idle daemons, CPU", "all", (percent, "%"), AtMost(0.1));
        Ok(())
    }

    fn count_round_trips(&mut self, parent: &Path) -> Outcome<()> {
        let trips = round_trips::count(parent)?;
        for (case, who, measured, most) in [
            ("round trips: stat", "library", trips.library_stat, 1.0),
            ("round trips: stat", "mount", trips.mount_stat, 3.0),
            ("round trips: create", "library", trips.library_create, 1.0),
            ("round trips: create", "mount", trips.mount_create, 4.0),
        ] {
            self.print_figure(case, who, (measured, ""), AtMost(most));
        }
        Ok(())
    }
}

/// Seconds for `bytes` over one TCP connection on loopback.
fn measure_stream(bytes: u64) -> Outcome<f64> {
    let mut receiver = Process::spawn_role(&["stream"])?;
    let address = receiver.read_line()?;
    send_stream(&address, bytes)?;
    let rate: f64 = receiver.read_line()?.parse()?;
    Ok(bytes as f64 / rate)
}
