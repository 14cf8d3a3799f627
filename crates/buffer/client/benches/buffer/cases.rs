//! The cases, their contestants and targets.

use crate::process::Process;
use crate::report::{self, Line, Target, median};
use crate::site::{Place, Site};
use crate::work::{Durable, MIB, Task, send};
use crate::{Options, Outcome, round_trips};
use std::path::Path;
use std::time::{Duration, Instant};

use Place::{
    Base, Gluster, Library, LibraryTwo, Mount, Stream, Tcp, TcpEncrypted, TcpIntegrity, TcpTwo,
};
use Target::{AtLeast, AtMost};

/// What the seconds of a round are made into.
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
    /// Contestants with what is wanted of them: of their ratio to the first one, if that is at
    /// most 1, or of their rate.
    places: &'static [(Place, Target)],
    /// Data is read from the disk, not from memory.
    cold: bool,
}

const NONE: Target = Target::None;

const fn write(size: u64, count: u64, shared: bool, durable: Durable) -> Task {
    let fresh = matches!(durable, Durable::AtTheEnd);
    Task::Write { size, count, shared, fresh, durable }
}

const fn read(size: u64, count: u64, shared: bool) -> Task {
    Task::Read { size, count, shared }
}

const HARD: u64 = 47_008;

const DISK: [Case; 5] = [
    Case {
        name: "disk: write 1 MiB, then fsync",
        clients: 1,
        task: write(MIB, 1024, false, Durable::AtTheEnd),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Library, AtLeast(0.9)), (Mount, AtLeast(0.7)), (Gluster, NONE)],
        cold: true,
    },
    Case {
        name: "disk: read 1 MiB",
        clients: 1,
        task: read(MIB, 1024, false),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Library, AtLeast(0.9)), (Mount, AtLeast(0.7)), (Gluster, NONE)],
        cold: true,
    },
    Case {
        name: "disk: write 4 MiB over TCP, fsync",
        clients: 4,
        task: write(4 * MIB, 64, false, Durable::AtTheEnd),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Tcp, NONE)],
        cold: true,
    },
    Case {
        name: "disk: read 4 MiB over TCP",
        clients: 4,
        task: read(4 * MIB, 64, false),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Tcp, NONE)],
        cold: true,
    },
    Case {
        name: "disk: write 4 KiB, fdatasync each",
        clients: 2,
        task: write(4096, 512, false, Durable::EachWrite),
        unit: Unit::Operations,
        places: &[(Base, NONE), (Library, NONE), (Mount, NONE), (Gluster, NONE)],
        cold: false,
    },
];

const MEMORY: [Case; 11] = [
    Case {
        name: "tmpfs: write 1 MiB over TCP",
        clients: 1,
        task: write(MIB, 1024, false, Durable::Never),
        unit: Unit::Bytes,
        places: &[
            (Stream, NONE),
            (Tcp, AtLeast(0.5)),
            (TcpIntegrity, NONE),
            (TcpEncrypted, NONE),
            (TcpTwo, NONE),
        ],
        cold: false,
    },
    Case {
        name: "tmpfs: read 1 MiB over TCP",
        clients: 1,
        task: read(MIB, 1024, false),
        unit: Unit::Bytes,
        places: &[
            (Stream, NONE),
            (Tcp, AtLeast(0.5)),
            (TcpIntegrity, NONE),
            (TcpEncrypted, NONE),
            (TcpTwo, NONE),
        ],
        cold: false,
    },
    Case {
        name: "tmpfs: write 1 MiB",
        clients: 2,
        task: write(MIB, 512, false, Durable::Never),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Library, NONE), (Mount, NONE), (Gluster, NONE)],
        cold: false,
    },
    Case {
        name: "tmpfs: read 1 MiB",
        clients: 2,
        task: read(MIB, 512, false),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Library, NONE), (Mount, NONE), (Gluster, NONE)],
        cold: false,
    },
    Case {
        name: "tmpfs: write 1 MiB, two daemons",
        clients: 2,
        task: write(MIB, 512, false, Durable::Never),
        unit: Unit::Bytes,
        places: &[(Library, NONE), (LibraryTwo, AtLeast(0.9))],
        cold: false,
    },
    Case {
        name: "tmpfs: create",
        clients: 2,
        task: Task::Create(20_000),
        unit: Unit::Operations,
        places: METADATA,
        cold: false,
    },
    Case {
        name: "tmpfs: stat",
        clients: 2,
        task: Task::Stat(20_000),
        unit: Unit::Operations,
        places: OTHER_METADATA,
        cold: false,
    },
    Case {
        name: "tmpfs: unlink",
        clients: 2,
        task: Task::Unlink(20_000),
        unit: Unit::Operations,
        places: OTHER_METADATA,
        cold: false,
    },
    Case {
        name: "tmpfs: write 4 KiB",
        clients: 2,
        task: write(4096, 16_384, false, Durable::Never),
        unit: Unit::Operations,
        places: &[
            (Base, NONE),
            (Library, AtLeast(15_000.0)),
            (Mount, AtLeast(15_000.0)),
            (Tcp, AtLeast(15_000.0)),
            (Gluster, NONE),
        ],
        cold: false,
    },
    Case {
        name: "tmpfs: write 47,008 B, one file",
        clients: 4,
        task: write(HARD, 4_000, true, Durable::Never),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Library, AtLeast(1000.0)), (Mount, AtLeast(1000.0)), (Tcp, NONE)],
        cold: false,
    },
    Case {
        name: "tmpfs: read 47,008 B, one file",
        clients: 4,
        task: read(HARD, 4_000, true),
        unit: Unit::Bytes,
        places: &[(Base, NONE), (Library, NONE), (Mount, NONE), (Tcp, NONE)],
        cold: false,
    },
];

const METADATA: &[(Place, Target)] = &[
    (Base, NONE),
    (Library, AtLeast(25_000.0)),
    (Tcp, AtLeast(25_000.0)),
    (Mount, NONE),
    (Gluster, NONE),
];
const OTHER_METADATA: &[(Place, Target)] =
    &[(Base, NONE), (Library, NONE), (Tcp, NONE), (Mount, NONE), (Gluster, NONE)];

impl Task {
    fn shorter(self, divisor: u64) -> Task {
        let less = |count: u64| (count / divisor).max(1);
        let mut task = self;
        match &mut task {
            Task::Create(count) | Task::Stat(count) | Task::Unlink(count) => *count = less(*count),
            Task::Write { count, .. } | Task::Read { count, .. } => *count = less(*count),
        }
        task
    }

    fn operations(self) -> u64 {
        match self {
            Task::Create(count) | Task::Stat(count) | Task::Unlink(count) => count,
            Task::Write { count, .. } | Task::Read { count, .. } => count,
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Task::Write { size, count, .. } | Task::Read { size, count, .. } => size * count,
            _ => 0,
        }
    }

    /// What the same clients must have done before: files are there to be read, names to be found.
    fn needs(self) -> Option<Task> {
        match self {
            Task::Stat(count) | Task::Unlink(count) => Some(Task::Create(count)),
            Task::Read { size, count, shared } => {
                Some(write(size, count, shared, Durable::AtTheEnd))
            }
            Task::Create(_) | Task::Write { .. } => None,
        }
    }

    /// Whether it leaves behind what `other` does.
    fn leaves_the_same(self, other: Task) -> bool {
        match (self, other) {
            (Task::Create(one), Task::Create(other)) => one == other,
            (
                Task::Write { size, count, shared, .. },
                Task::Write { size: other_size, count: other_count, shared: other_shared, .. },
            ) => (size, count, shared) == (other_size, other_count, other_shared),
            _ => false,
        }
    }

    /// Names can be made and removed once.
    fn only_once(self) -> bool {
        matches!(self, Task::Create(_) | Task::Unlink(_))
    }
}

/// Measure and print everything.
pub fn all(options: &Options) -> Outcome<()> {
    let mut lines = Vec::new();
    report::heading();
    let mut told = |line: Line| {
        report::print(&line);
        lines.push(line);
    };
    for (parent, cases, memory) in
        [(&options.disk, &DISK[..], false), (&options.memory, &MEMORY[..], true)]
    {
        let wanted: Vec<&Case> =
            cases.iter().filter(|case| case.name.contains(&options.only)).collect();
        if wanted.is_empty() {
            continue;
        }
        let site = Site::start(parent, options.gluster)?;
        let mut done: Vec<(u64, Task)> = Vec::new();
        for case in wanted {
            let before = case.task.needs();
            let is_there = |need: Task| {
                let same = |(clients, task): &(u64, Task)| {
                    *clients == case.clients && task.leaves_the_same(need)
                };
                done.iter().any(same)
            };
            if let Some(need) = before.filter(|need| !is_there(*need)) {
                prepare(case, need, &site, options)?;
                done.push((case.clients, need));
            }
            run(case, &site, options, &mut told)?;
            done.push((case.clients, case.task));
        }
        if memory {
            idle(&site, &mut told)?;
        }
    }
    if "round trips".contains(&options.only) {
        trips(&options.memory, &mut told)?;
    }
    report::write("buffer", &lines, &options.json)?;
    println!("written to {}", options.json.display());
    Ok(())
}

/// Do at all of a case's places what it needs and `--only` has left out.
fn prepare(case: &Case, need: Task, site: &Site, options: &Options) -> Outcome<()> {
    for place in places(case, site).map(|(place, _)| place) {
        if place != Stream {
            let task = task_of(place, need.shorter(options.divisor));
            site.measure(place, task, case.clients)?;
        }
    }
    Ok(())
}

/// A case's contestants, as far as they are there.
fn places(case: &Case, site: &Site) -> impl Iterator<Item = (Place, Target)> {
    let gluster = site.gluster.is_some();
    let all = case.places.iter().copied();
    all.filter(move |(place, _)| *place != Gluster || gluster)
}

/// Metadata through FUSE takes long: less of it is measured there.
fn task_of(place: Place, task: Task) -> Task {
    match place {
        Mount | Gluster if task.bytes() == 0 => task.shorter(10),
        _ => task,
    }
}

fn run(case: &Case, site: &Site, options: &Options, told: &mut dyn FnMut(Line)) -> Outcome<()> {
    let task = case.task.shorter(options.divisor);
    let places: Vec<(Place, Target)> = places(case, site).collect();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); places.len()];
    let mut costs = Vec::new();
    let rounds = if task.only_once() { 1 } else { options.rounds };
    for _ in 0..rounds {
        for ((place, _), rates) in places.iter().zip(&mut rates) {
            if case.cold {
                site.evict()?;
            }
            let before = site.daemon_cpu()?;
            let task = task_of(*place, task);
            let seconds = match place {
                Stream => stream(task.bytes()),
                place => site.measure(*place, task, case.clients),
            };
            let seconds = seconds.unwrap_or_else(|error| {
                eprintln!("{}: {} FAILED: {error}", case.name, place.name());
                f64::NAN
            });
            let all = (task.operations() * case.clients) as f64;
            if *place == Library && task.bytes() == 0 {
                let cpu = site.daemon_cpu()?.saturating_sub(before);
                costs.push(cpu.as_secs_f64() * 1e6 / all);
            }
            rates.push(match case.unit {
                Unit::Bytes => (task.bytes() * case.clients) as f64 / 1e6 / seconds,
                Unit::Operations => all / seconds,
            });
        }
    }
    let first = rates.first().cloned().unwrap_or_default();
    for (index, ((place, target), rates)) in places.iter().zip(&rates).enumerate() {
        let ratios = rates.iter().zip(&first).map(|(rate, first)| rate / first);
        let beside = places.first().filter(|_| index > 0);
        told(Line {
            case: case.name.to_owned(),
            who: place.name().to_owned(),
            measured: median(rates.clone()),
            unit: match case.unit {
                Unit::Bytes => "MB/s",
                Unit::Operations => "/s",
            },
            beside: beside.map(|(first, _)| (median(ratios.collect()), first.name())),
            target: *target,
        });
    }
    if !costs.is_empty() {
        told(Line {
            case: format!("{}, daemon's CPU", case.name),
            who: "library".to_owned(),
            measured: median(costs),
            unit: "us",
            beside: None,
            target: AtMost(40.0),
        });
    }
    Ok(())
}

/// Seconds that one TCP connection over loopback takes.
fn stream(bytes: u64) -> Outcome<f64> {
    let mut receiver = Process::role(&["stream"])?;
    let address = receiver.line()?;
    send(&address, bytes)?;
    let rate: f64 = receiver.line()?.parse()?;
    Ok(bytes as f64 / rate)
}

/// CPU of daemons that nobody asks anything, with a mount attached.
fn idle(site: &Site, told: &mut dyn FnMut(Line)) -> Outcome<()> {
    const TIME: Duration = Duration::from_secs(4);
    // What was done before becomes durable within a second, and leases end.
    std::thread::sleep(Duration::from_secs(3));
    let (before, begun) = (site.daemon_cpu()?, Instant::now());
    std::thread::sleep(TIME);
    let share = (site.daemon_cpu()? - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    told(Line {
        case: "idle daemons, CPU".to_owned(),
        who: "daemons".to_owned(),
        measured: 100.0 * share,
        unit: "%",
        beside: None,
        target: AtMost(0.1),
    });
    Ok(())
}

fn trips(parent: &Path, told: &mut dyn FnMut(Line)) -> Outcome<()> {
    let trips = round_trips::count(parent)?;
    for (case, who, measured, most) in [
        ("round trips: stat", "library", trips.library_stat, 3.0),
        ("round trips: stat", "mount", trips.mount_stat, 3.0),
        ("round trips: create", "library", trips.library_create, 4.0),
        ("round trips: create", "mount", trips.mount_create, 4.0),
    ] {
        told(Line {
            case: case.to_owned(),
            who: who.to_owned(),
            measured,
            unit: "",
            beside: None,
            target: AtMost(most),
        });
    }
    Ok(())
}
