//! The programs, their arguments, and their results.

use crate::Outcome;
use crate::sources;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The result of a case.
#[derive(Clone, Debug)]
pub struct Rate {
    pub case: &'static str,
    pub value: f64,
    /// Seconds are better if they are fewer, everything else if it is more.
    pub unit: &'static str,
}

impl Rate {
    /// Speed as a multiple of another one.
    pub fn ratio_to(&self, other: &Rate) -> f64 {
        if self.unit == "s" { other.value / self.value } else { self.value / other.value }
    }
}

/// Runs the executable file in a directory, with less work if the last argument is true.
type Run = fn(&Path, &Path, bool) -> Outcome<Vec<Rate>>;

pub struct Program {
    pub name: &'static str,
    executable: &'static str,
    /// Debian's package of it, or where it comes from.
    package: &'static str,
    run: Run,
}

const IO500_SOURCE: &str = "github.com/hpc/ior, with --programs DIRECTORY";

pub const PROGRAMS: &[Program] = &[
    Program { name: "dbench", executable: "dbench", package: "dbench", run: dbench },
    Program { name: "ior easy", executable: "ior", package: IO500_SOURCE, run: ior_easy },
    Program { name: "ior small", executable: "ior", package: IO500_SOURCE, run: ior_small },
    Program { name: "ior hard", executable: "ior", package: IO500_SOURCE, run: ior_hard },
    Program { name: "mdtest easy", executable: "mdtest", package: IO500_SOURCE, run: mdtest_easy },
    Program { name: "mdtest hard", executable: "mdtest", package: IO500_SOURCE, run: mdtest_hard },
    Program { name: "bonnie++", executable: "bonnie++", package: "bonnie++", run: bonnie },
    Program { name: "git, make", executable: "git", package: "git", run: git },
];

impl Program {
    pub fn run(&self, executable: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
        (self.run)(executable, dir, quick)
    }
}

/// The executable file of a program. `None`, with a message: it is not installed.
pub fn find(program: &Program, first: Option<&Path>) -> Outcome<Option<PathBuf>> {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin");
    let directories = first.map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    let found = directories.map(|dir| dir.join(program.executable)).find(|file| file.is_file());
    if found.is_none() {
        let (name, package) = (program.name, program.package);
        println!("{name}: SKIPPED: {} is not installed ({package})", program.executable);
    }
    Ok(found.map(|file| file.canonicalize()).transpose()?)
}

/// The output of a program that has succeeded.
fn output(command: &mut Command) -> Outcome<String> {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{}{text}", String::from_utf8_lossy(&output.stderr)).into())
}

/// The number at a position of the first line that begins with `start`, after `start`.
fn number_after(text: &str, start: &str, position: usize) -> Outcome<f64> {
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(start));
    let word = rest.and_then(|rest| rest.split_whitespace().nth(position));
    Ok(word.ok_or_else(|| format!("no result {start:?} in: {text}"))?.parse()?)
}

fn dbench(program: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
    let seconds = if quick { "2" } else { "5" };
    let mut command = Command::new(program);
    let load = Path::new("/usr/share/dbench/client.txt");
    if load.exists() {
        command.arg("-c").arg(load);
    }
    let text = output(command.args(["-t", seconds, "-D"]).arg(dir).arg("4"))?;
    let value = number_after(&text, "Throughput", 0)?;
    Ok(vec![Rate { case: "4 clients", value, unit: "MB/s" }])
}

fn ior(program: &Path, dir: &Path, arguments: &str) -> Outcome<Vec<Rate>> {
    let file = dir.join("file");
    let mut command = Command::new(program);
    let text =
        output(command.args(["-w", "-r", "-e"]).args(arguments.split(' ')).arg("-o").arg(file))?;
    let rate = |case| Ok(Rate { case, value: number_after(&text, case, 0)?, unit: "MiB/s" });
    ["write", "read"].into_iter().map(rate).collect()
}

fn ior_easy(program: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
    ior(program, dir, if quick { "-t 2m -b 64m" } else { "-t 2m -b 256m" })
}

fn ior_small(program: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
    ior(program, dir, if quick { "-t 8k -b 16m" } else { "-t 8k -b 64m" })
}

/// The pieces of IO500.
fn ior_hard(program: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
    let pieces = if quick { "-t 47008 -b 47008 -s 500" } else { "-t 47008 -b 47008 -s 2000" };
    ior(program, dir, pieces)
}

fn mdtest(program: &Path, dir: &Path, arguments: &str, reads: bool) -> Outcome<Vec<Rate>> {
    let mut command = Command::new(program);
    let text = output(command.arg("-F").args(arguments.split(' ')).arg("-d").arg(dir.join("md")))?;
    let mut cases =
        vec![("create", "File creation"), ("stat", "File stat"), ("remove", "File removal")];
    cases.extend(reads.then_some(("read", "File read")));
    let rate =
        |(case, start)| Ok(Rate { case, value: number_after(&text, start, 0)?, unit: "1/s" });
    cases.into_iter().map(rate).collect()
}

fn mdtest_easy(program: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
    mdtest(program, dir, if quick { "-u -n 500" } else { "-u -n 2000" }, false)
}

/// The bytes per file of IO500.
fn mdtest_hard(program: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
    let files = if quick { "-w 3901 -e 3901 -n 500" } else { "-w 3901 -e 3901 -n 2000" };
    mdtest(program, dir, files, true)
}

fn bonnie(program: &Path, dir: &Path, quick: bool) -> Outcome<Vec<Rate>> {
    let size = if quick { ["-s", "256", "-r", "128"] } else { ["-s", "1024", "-r", "512"] };
    let mut command = Command::new(program);
    command.args(["-n", "0", "-f", "-q", "-d"]).arg(dir).args(size);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let text = output(&mut command)?;
    let row = text.lines().rev().find(|line| line.contains(',')).ok_or("no results")?;
    let fields: Vec<&str> = row.split(',').collect();
    // It prints pluses for what it did too fast.
    let rate = |(case, field): (&'static str, usize)| {
        let kib = fields.get(field).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
        Rate { case, value: kib / 1024.0, unit: "MiB/s" }
    };
    Ok([("write", 11), ("rewrite", 13)].map(rate).to_vec())
}

fn git(program: &Path, dir: &Path, _quick: bool) -> Outcome<Vec<Rate>> {
    let repository = std::env::temp_dir().join(format!("forebay-sources-{}", std::process::id()));
    sources::make_repository(&repository)?;
    let clone = dir.join("clone");
    let start = Instant::now();
    let cloned =
        sources::run(Command::new(program).args(["clone", "-q"]).arg(&repository).arg(&clone));
    let clone_seconds = start.elapsed().as_secs_f64();
    std::fs::remove_dir_all(&repository)?;
    cloned?;
    let start = Instant::now();
    sources::run(Command::new("make").arg("-s").arg("-j2").arg("-C").arg(&clone))?;
    let make_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    sources::run(Command::new(program).arg("-C").arg(&clone).arg("status"))?;
    let status_seconds = start.elapsed().as_secs_f64();
    Ok(vec![
        Rate { case: "clone", value: clone_seconds, unit: "s" },
        Rate { case: "make -j2", value: make_seconds, unit: "s" },
        Rate { case: "status", value: status_seconds, unit: "s" },
    ])
}
