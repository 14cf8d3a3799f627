//! The cases and their targets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_client::{Admin, ClientOptions, Fs};
use forebay_net::auth::PoolKey;
use forebay_protocol::InstanceId;
use forebay_protocol::address::Address;
use forebay_protocol::message::InstanceSpec;
use forebay_stage::end::LocalFileSystem;
use forebay_stage::{
    ItemKind, Namespace, ProgressCounters, StageItem, StageLocation, StageReport, StageRequest,
    Verify, run_stage,
};
use forebay_store::daemon::{self, Daemon};

use crate::command_line::Options;
use crate::distance::Distant;
use crate::floor::{copy, read, run_both, timed, write};
use crate::inside::Files;
use crate::report::{self, Line, Target, median};
use crate::trees::{self, Shape, compare, shape};
use crate::{Amounts, Outcome};

/// A tree that is staged, and the location of the instance.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Small files, otherwise large ones.
    small: bool,
    /// The instance is on tmpfs, otherwise on the disk of the parallel file system.
    memory: bool,
}

const CASES: [Case; 4] = [
    Case { name: "large, disk", small: false, memory: false },
    Case { name: "large, tmpfs", small: false, memory: true },
    Case { name: "small, disk", small: true, memory: false },
    Case { name: "small, tmpfs", small: true, memory: true },
];

/// A measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    /// Reading everything on the parallel file system.
    Outside,
    /// Reading everything in the instance.
    Inside,
    /// Both sides of a stage-in, independently.
    SidesIn,
    /// Both sides of a stage-out, independently.
    SidesOut,
    CopyIn,
    CopyOut,
    DurableIn,
    BackIn,
    WholeIn,
    DurableOut,
    BackOut,
    WholeOut,
}

use Figure::{
    BackIn, BackOut, CopyIn, CopyOut, DurableIn, DurableOut, Inside, Outside, SidesIn, SidesOut,
    WholeIn, WholeOut,
};

impl Figure {
    /// Its name, and the name of the contestant.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Outside => ("PFS read", "alone"),
            Inside => ("instance read", "alone"),
            SidesIn => ("in, both sides", "alone"),
            SidesOut => ("out, both sides", "alone"),
            CopyIn => ("in, copied", "cp -a"),
            CopyOut => ("out, copied", "cp -a"),
            DurableIn => ("in, durable", "stage"),
            BackIn => ("in, read back", "stage"),
            WholeIn => ("in, whole", "stage"),
            DurableOut => ("out, durable", "stage"),
            BackOut => ("out, read back", "stage"),
            WholeOut => ("out, whole", "stage"),
        }
    }
}

/// A step of a round.
#[derive(Clone, Copy)]
enum Step {
    Read,
    Sides,
    Copy,
    Stage,
}

/// Measures and prints all cases.
pub fn measure_all(options: &Options, amounts: &Amounts) -> Outcome<()> {
    report::print_heading();
    let mut lines = Vec::new();
    for small in [false, true] {
        let selected: Vec<&Case> = CASES
            .iter()
            .filter(|case| case.small == small && case.name.contains(&options.only))
            .collect();
        if selected.is_empty() {
            continue;
        }
        let home = Scratch::new(&options.disk, "disk")?;
        let source = home.path("source");
        match small {
            true => trees::create_small_files(&source, amounts.small_files)?,
            false => trees::create_large_files(&source, amounts.gibibytes)?,
        }
        let shape = shape(&source)?;
        for case in selected {
            measure(case, options, amounts.tcp, (&home, &shape), &mut lines)?;
        }
    }
    report::write_json("staging", &lines, &options.json)?;
    println!("written to {}", options.json.display());
    Ok(())
}

/// Number of copying threads.
fn workers() -> usize {
    forebay_stage::StageOptions::default().workers
}

/// A directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path, name: &str) -> Outcome<Scratch> {
        let home = parent.join(format!("forebay-staging-{name}-{}", std::process::id()));
        fs::create_dir_all(&home)?;
        Ok(Scratch(home))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Seconds of each figure in all rounds.
type Seconds = BTreeMap<Figure, Vec<f64>>;

fn measure(
    case: &Case,
    options: &Options,
    tcp: Option<Duration>,
    (home, shape): (&Scratch, &Shape),
    lines: &mut Vec<Line>,
) -> Outcome<()> {
    let memory = Scratch::new(&options.memory, "memory")?;
    let flash = if case.memory { &memory } else { home };
    let mut steps = [Step::Read, Step::Sides, Step::Copy, Step::Stage];
    let mut start = daemon::StoreOptions::new(flash.path("flash"));
    let mut client = ClientOptions::default();
    if let Some(round_trip) = tcp {
        let key = PoolKey::new(b"only for this benchmark")?;
        start.tcp = Some("127.0.0.1:0".parse()?);
        start.key = Some(key.clone());
        client.key = Some(key);
        client.system = Arc::new(Distant(round_trip));
    }
    let daemon = Daemon::start(start)?;
    let address = daemon.tcp_address().unwrap_or_else(|| daemon.address());
    let bench = Bench { home, flash, shape, daemon, address, client };
    let mut seconds = Seconds::new();
    for round in 0..options.rounds {
        for step in &steps {
            for (figure, took) in bench.step(*step, round, case)? {
                seconds.entry(figure).or_default().push(took);
            }
        }
        steps.reverse();
    }
    bench.daemon.stop()?;
    fs::remove_dir_all(flash.path("flash"))?;
    print_figures(case, shape, &seconds, lines);
    Ok(())
}

fn print_figures(case: &Case, shape: &Shape, seconds: &Seconds, lines: &mut Vec<Line>) {
    const TARGET: Target = Target::AtLeast(0.8);
    const NONE: Target = Target::None;
    // Targets of a phase, compared with both sides alone, and of the whole stage, compared with `cp`.
    let (phase, whole) = match case.small {
        false => (TARGET, NONE),
        true => (NONE, TARGET),
    };
    let mut table = vec![
        (Outside, None, NONE),
        (Inside, None, NONE),
        (SidesIn, None, NONE),
        (CopyIn, Some(SidesIn), NONE),
        (DurableIn, Some(SidesIn), phase),
    ];
    // On tmpfs nothing is read from a device.
    if !case.memory {
        table.push((BackIn, Some(Inside), phase));
    }
    table.extend([
        (WholeIn, Some(CopyIn), whole),
        (SidesOut, None, NONE),
        (CopyOut, Some(SidesOut), NONE),
        (DurableOut, Some(SidesOut), phase),
        (BackOut, Some(Outside), phase),
        (WholeOut, Some(CopyOut), whole),
    ]);
    for (figure, baseline, target) in table {
        let Some(took) = seconds.get(&figure) else {
            continue;
        };
        let (what, who) = figure.names();
        let (amount, unit) = match (case.small, figure) {
            (false, _) => (shape.bytes as f64 / 1e6, "MB/s"),
            // Links are not read.
            (true, Outside | Inside | BackIn | BackOut) => (shape.files as f64, "/s"),
            (true, _) => (shape.entries() as f64, "/s"),
        };
        let ratio = baseline.and_then(|other| {
            let ratios = seconds.get(&other)?.iter().zip(took);
            let ratios = ratios.map(|(other, own)| other / own).collect();
            let name = match other {
                CopyIn | CopyOut => "cp -a",
                Outside | Inside => "reading",
                _ => "both sides",
            };
            Some((median(ratios), name))
        });
        let line = Line {
            case: format!("{}: {what}", case.name),
            who: who.to_owned(),
            measured: median(took.iter().map(|took| amount / took).collect()),
            unit,
            ratio,
            target,
        };
        report::print_line(&line);
        lines.push(line);
    }
}

/// One case.
struct Bench<'a> {
    /// The parallel file system.
    home: &'a Scratch,
    flash: &'a Scratch,
    shape: &'a Shape,
    daemon: Daemon,
    address: Address,
    client: ClientOptions,
}

impl Bench<'_> {
    /// Runs a step. Returns its figures in seconds.
    fn step(&self, step: Step, round: usize, case: &Case) -> Outcome<Vec<(Figure, f64)>> {
        let source = self.home.path("source");
        match step {
            Step::Read => {
                let threads = workers();
                let (took, ()) = timed(|| Ok(read(&source, self.shape, threads)?))?;
                Ok(vec![(Outside, took)])
            }
            Step::Sides => self.sides(&source, round),
            Step::Copy => {
                let (to, back) = (self.flash.path("copied"), self.home.path("back"));
                let (there, ()) = timed(|| copy(&source, &to))?;
                let out = if case.memory {
                    let (out, ()) = timed(|| copy(&to, &back))?;
                    fs::remove_dir_all(back)?;
                    out
                } else {
                    there
                };
                fs::remove_dir_all(to)?;
                Ok(vec![(CopyIn, there), (CopyOut, out)])
            }
            Step::Stage => self.stage_in_and_out(&source, round),
        }
    }

    /// Runs `act` in a new instance.
    fn with_instance<T>(&self, id: usize, act: impl FnOnce(Fs) -> Outcome<T>) -> Outcome<T> {
        let id = InstanceId(id as u64);
        let admin = Admin::connect(self.daemon.address(), ClientOptions::default())?;
        admin.create_instance(InstanceSpec {
            id,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mode: 0o700,
            capacity: self.shape.bytes + (8 << 30),
            inodes: 2 * self.shape.entries() + 1_000_000,
            placement: forebay_protocol::placement::Placement::single_node(),
        })?;
        let fs = Fs::attach(self.address.clone(), id, self.client.clone())?;
        fs.mkdir_all(Path::new("striped"), 0o755)?;
        let value = act(fs)?;
        admin.remove_instance(id, true)?;
        Ok(value)
    }

    /// Both sides of a stage-in and of a stage-out, independently.
    fn sides(&self, source: &Path, round: usize) -> Outcome<Vec<(Figure, f64)>> {
        let (shape, threads) = (self.shape, workers());
        let to = self.home.path("written");
        let took = self.with_instance(2 * round + 1, |fs| {
            let root = Path::new("striped/data");
            let reading = || read(source, shape, threads);
            let filling = || Files::write(&fs, root, shape, threads);
            let (there, files) = timed(|| Ok(run_both(reading, filling)?))?;
            let (inside, ()) = timed(|| Ok(files.read(shape, threads)?))?;
            let reading = || files.read(shape, threads);
            let writing = || write(&to, shape, threads);
            let (back, ()) = timed(|| Ok(run_both(reading, writing)?))?;
            Ok(vec![(SidesIn, there), (Inside, inside), (SidesOut, back)])
        })?;
        fs::remove_dir_all(to)?;
        Ok(took)
    }

    /// Stages the source in and out again.
    fn stage_in_and_out(&self, source: &Path, round: usize) -> Outcome<Vec<(Figure, f64)>> {
        let staged = self.home.path("staged");
        let (there, back) = self.with_instance(2 * round + 2, |fs| {
            let space = Namespace::new(fs, Path::new("striped"), "$DW_JOB_STRIPED")?;
            let inside = || StageLocation::in_instance(&space, "data");
            let pfs = LocalFileSystem::open(&[], None);
            let there = self.stage(StageLocation::in_pfs(&pfs, source), inside())?;
            let back = self.stage(inside(), StageLocation::in_pfs(&pfs, &staged))?;
            Ok((there, back))
        })?;
        if round == 0 {
            compare(source, &staged)?;
        }
        fs::remove_dir_all(staged)?;
        let times = |report: &StageReport, [durable, back, whole]: [Figure; 3]| {
            [
                (durable, report.times.until_durable().as_secs_f64()),
                (back, report.times.reading_back.as_secs_f64()),
                (whole, report.time.as_secs_f64()),
            ]
        };
        let mut all = times(&there, [DurableIn, BackIn, WholeIn]).to_vec();
        all.extend(times(&back, [DurableOut, BackOut, WholeOut]));
        Ok(all)
    }

    fn stage(&self, source: StageLocation, target: StageLocation) -> Outcome<StageReport> {
        let journal = self.flash.path("journal");
        let _ = fs::remove_file(&journal);
        let kind = ItemKind::Directory;
        let items = vec![StageItem { kind, source, target }];
        let options = forebay_stage::StageOptions {
            verify: Verify::ReadBack,
            journal: Some(journal),
            ..forebay_stage::StageOptions::default()
        };
        let stage = || Ok(run_stage(&StageRequest { items }, &options, &ProgressCounters::new())?);
        let (_, report): (f64, StageReport) = timed(stage)?;
        if report.read_back != self.shape.bytes {
            return Err("the stage did not read everything back".into());
        }
        Ok(report)
    }
}
