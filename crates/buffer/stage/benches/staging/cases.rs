//! What is measured, and what is wanted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use forebay_client::{Admin, Fs};
use forebay_stage::{Item, Place, Progress, Report, Request, Space, Verify, What, stage};
use forebay_store::daemon::{self, Daemon};
use forebay_wire::InstanceId;
use forebay_wire::message::InstanceSpec;

use crate::floor::{copy, read, read_and_write, timed, write};
use crate::report::{self, Line, Target, median};
use crate::trees::{self, Shape, compare, shape};
use crate::{Options, Outcome};

/// What is staged, and where the instance is.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Small files, else large ones.
    small: bool,
    /// The instance is in memory, else on the disk that is the parallel file system, too.
    memory: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "large, disk",
        small: false,
        memory: false,
    },
    Case {
        name: "large, tmpfs",
        small: false,
        memory: true,
    },
    Case {
        name: "small, disk",
        small: true,
        memory: false,
    },
    Case {
        name: "small, tmpfs",
        small: true,
        memory: true,
    },
];

/// Something that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    /// Reading all on the disk.
    Read,
    /// Writing all on the disk.
    Write,
    /// Both at the same time.
    Both,
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
    BackIn, BackOut, Both, CopyIn, CopyOut, DurableIn, DurableOut, Read, WholeIn, WholeOut, Write,
};

impl Figure {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Read => ("read", "disk alone"),
            Write => ("written", "disk alone"),
            Both => ("read and written", "disk alone"),
            CopyIn => ("copied in", "cp -a"),
            CopyOut => ("copied out", "cp -a"),
            DurableIn => ("in, durable", "stage"),
            BackIn => ("in, read back", "stage"),
            WholeIn => ("in, whole", "stage"),
            DurableOut => ("out, durable", "stage"),
            BackOut => ("out, read back", "stage"),
            WholeOut => ("out, whole", "stage"),
        }
    }
}

/// What happens in a round.
#[derive(Clone, Copy)]
enum Step {
    Read,
    Write,
    Both,
    Copy,
    Stage,
}

/// Measure and print everything.
pub fn all(options: &Options) -> Outcome<()> {
    report::heading();
    let mut lines = Vec::new();
    for small in [false, true] {
        let wanted: Vec<&Case> = CASES
            .iter()
            .filter(|case| case.small == small && case.name.contains(&options.only))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let home = Scratch::new(&options.disk, "disk")?;
        let source = home.path("source");
        match small {
            true => trees::small(&source, options.files)?,
            false => trees::large(&source, options.gibibytes)?,
        }
        let shape = shape(&source)?;
        for case in wanted {
            measure(case, options, &home, &shape, &mut lines)?;
        }
    }
    report::write("staging", &lines, &options.json)?;
    println!("written to {}", options.json.display());
    Ok(())
}

/// A directory that is removed in the end.
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

/// Seconds of all rounds.
type Seconds = BTreeMap<Figure, Vec<f64>>;

fn measure(
    case: &Case,
    options: &Options,
    home: &Scratch,
    shape: &Shape,
    lines: &mut Vec<Line>,
) -> Outcome<()> {
    let memory = Scratch::new(&options.memory, "memory")?;
    let flash = if case.memory { &memory } else { home };
    let mut steps = vec![Step::Read, Step::Write, Step::Copy, Step::Stage];
    if !case.memory {
        steps.push(Step::Both);
    }
    let bench = Bench {
        home,
        flash,
        shape,
        daemon: Daemon::start(daemon::Options::new(flash.path("flash")))?,
    };
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
    tell(case, shape, &seconds, lines);
    Ok(())
}

fn tell(case: &Case, shape: &Shape, seconds: &Seconds, lines: &mut Vec<Line>) {
    const WANTED: Target = Target::AtLeast(0.8);
    const NONE: Target = Target::None;
    // With both ends on the disk, one rate holds for both directions.
    let (slower_in, slower_out) = match case.memory {
        true => (Read, Write),
        false => (Both, Both),
    };
    let mut table = vec![(Read, None, NONE), (Write, None, NONE), (Both, None, NONE)];
    table.extend([
        (CopyIn, None, NONE),
        (CopyOut, None, NONE),
        (DurableIn, Some(slower_in), WANTED),
    ]);
    // What is in memory cannot be read from anywhere else.
    if !case.memory {
        table.push((BackIn, Some(Read), WANTED));
    }
    table.extend([
        (WholeIn, Some(CopyIn), NONE),
        (DurableOut, Some(slower_out), WANTED),
        (BackOut, Some(Read), WANTED),
        (WholeOut, Some(CopyOut), NONE),
    ]);
    for (figure, beside, target) in table {
        let Some(took) = seconds.get(&figure) else {
            continue;
        };
        let (what, who) = figure.words();
        let (amount, unit) = match (case.small, figure) {
            (false, _) => (shape.bytes as f64 / 1e6, "MB/s"),
            // Links are not read.
            (true, Read | BackIn | BackOut) => (shape.files as f64, "/s"),
            (true, _) => (shape.entries() as f64, "/s"),
        };
        let beside = beside.and_then(|other| {
            let ratios = seconds.get(&other)?.iter().zip(took);
            let ratios = ratios.map(|(other, own)| other / own).collect();
            let name = match other {
                CopyIn | CopyOut => "cp -a",
                Read => "reading",
                Write => "writing",
                _ => "both sides",
            };
            Some((median(ratios), name))
        });
        let line = Line {
            case: format!("{}: {what}", case.name),
            who: who.to_owned(),
            measured: median(took.iter().map(|took| amount / took).collect()),
            unit,
            beside,
            target,
        };
        report::print(&line);
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
}

impl Bench<'_> {
    /// Takes a step, and says how long what it consists of took.
    fn step(&self, step: Step, round: usize, case: &Case) -> Outcome<Vec<(Figure, f64)>> {
        let source = self.home.path("source");
        let threads = forebay_stage::Options::default().workers;
        match step {
            Step::Read => {
                let (took, ()) = timed(|| Ok(read(&source, self.shape, threads)?))?;
                Ok(vec![(Read, took)])
            }
            Step::Write => {
                let to = self.home.path("written");
                let (took, ()) = timed(|| Ok(write(&to, self.shape, threads)?))?;
                fs::remove_dir_all(to)?;
                Ok(vec![(Write, took)])
            }
            Step::Both => {
                let to = self.home.path("written");
                let (took, ()) = timed(|| Ok(read_and_write(&source, &to, self.shape, threads)?))?;
                fs::remove_dir_all(to)?;
                Ok(vec![(Both, took)])
            }
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
            Step::Stage => self.there_and_back(&source, round),
        }
    }

    /// Stages the source in, and out again.
    fn there_and_back(&self, source: &Path, round: usize) -> Outcome<Vec<(Figure, f64)>> {
        let id = InstanceId(1 + round as u64);
        let options = forebay_client::Options::default;
        let admin = Admin::connect(self.daemon.address(), options())?;
        admin.create_instance(InstanceSpec {
            id,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            mode: 0o700,
            capacity: self.shape.bytes + (8 << 30),
            inodes: 2 * self.shape.entries() + 1_000_000,
            place: forebay_wire::place::Place::alone(),
        })?;
        let fs = Fs::attach(self.daemon.address(), id, options())?;
        fs.mkdir_all(Path::new("striped"), 0o755)?;
        let space = Space::new(fs, Path::new("striped"), "$DW_JOB_STRIPED")?;
        let inside = || Place::inside(&space, "data");
        let staged = self.home.path("staged");
        let there = self.stage(Place::outside(source), inside())?;
        let back = self.stage(inside(), Place::outside(&staged))?;
        if round == 0 {
            compare(source, &staged)?;
        }
        drop(space);
        admin.remove_instance(id, true)?;
        fs::remove_dir_all(staged)?;
        let times = |report: &Report, [durable, back, whole]: [Figure; 3]| {
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

    fn stage(&self, source: Place, target: Place) -> Outcome<Report> {
        let journal = self.flash.path("journal");
        let _ = fs::remove_file(&journal);
        let what = What::Directory;
        let items = vec![Item {
            what,
            source,
            target,
        }];
        let options = forebay_stage::Options {
            verify: Verify::ReadBack,
            journal: Some(journal),
            ..forebay_stage::Options::default()
        };
        let stage = || Ok(stage(&Request { items }, &options, &Progress::new())?);
        let (_, report): (f64, Report) = timed(stage)?;
        if report.read_back != self.shape.bytes {
            return Err("not everything was read back".into());
        }
        Ok(report)
    }
}
