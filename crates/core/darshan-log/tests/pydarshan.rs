//! PyDarshan reads the same: every record, counter, segment and name of the logs in `tests/data`, and of those
//! in the directory `FOREBAY_DARSHAN_LOGS`. Skipped, with a line that says so, where Python has no `darshan`
//! (`pip install darshan`; `FOREBAY_PYTHON` names another interpreter).

use crate::real_logs::{data, directory};
use forebay_darshan_log::{Api, Log, Module, TraceApi};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

fn python() -> Option<String> {
    let python = std::env::var("FOREBAY_PYTHON").unwrap_or_else(|_| "python3".into());
    let found = Command::new(&python).args(["-c", "import darshan"]).output().ok()?;
    found.status.success().then_some(python)
}

/// Whether PyDarshan 3.5.0 loses the last two times of a record, the variances, when it converts POSIX records
/// before version 4.
fn lost_by_pydarshan(api: Api, version_of_posix: u32) -> bool {
    api == Api::Posix && version_of_posix < 4
}

/// The lines of `pydarshan_dump.py`, by this crate.
fn dump(path: &Path) -> String {
    let mut log = Log::open(File::open(path).unwrap()).unwrap();
    let (job, version) = (log.job().clone(), log.header().version);
    let rank = |rank: Option<u32>| rank.map_or(-1, i64::from);
    let bits = |value: f64| format!("{:016x}", value.to_bits());
    let mut out = format!(
        "job {} {} {} {} {version}\n",
        job.uid,
        job.job_id,
        job.processes,
        bits(job.run_seconds)
    );
    let version_of_posix = log.header().module(Module::POSIX).map_or(0, |region| region.version);
    for api in Api::ALL {
        log.records(api, |record| {
            let counters: Vec<_> = record.counters.iter().map(i64::to_string).collect();
            let mut times: Vec<_> = record.times.iter().copied().map(bits).collect();
            if lost_by_pydarshan(record.api, version_of_posix) {
                times[15..].fill(bits(0.0));
            }
            let (counters, times) = (counters.join(" "), times.join(" "));
            let (id, rank) = (record.id, rank(record.rank));
            writeln!(out, "{} {id} {rank} {counters} {times}", api.name()).unwrap();
        })
        .unwrap();
    }
    for (api, name) in [(TraceApi::Posix, "DXT_POSIX"), (TraceApi::MpiIo, "DXT_MPIIO")] {
        let mut seen = None;
        log.traces(api, |file, access, segments| {
            let head = (file.id, file.rank);
            if seen != Some(head) {
                seen = Some(head);
                writeln!(out, "{name} {} {} {}", file.id, file.rank, file.host).unwrap();
            }
            for segment in segments {
                let offset = segment.offset.map_or(-1, |offset| offset as i64);
                let (start, end) = (bits(segment.start), bits(segment.end));
                let (access, bytes) = (access.name(), segment.bytes);
                writeln!(out, "{access} {offset} {bytes} {start} {end}").unwrap();
            }
        })
        .unwrap();
    }
    log.lustre(|file| {
        write!(out, "LUSTRE {} {}", file.id, rank(file.rank)).unwrap();
        let mut targets = file.targets.iter();
        for component in &file.components {
            write!(out, " {} {}", component.stripe_bytes, component.stripe_count).unwrap();
            for target in targets.by_ref().take(component.stripe_count as usize) {
                write!(out, " {target}").unwrap();
            }
        }
        out.push('\n');
    })
    .unwrap();
    let mut mounts: Vec<_> = job.mounts.iter().map(|mount| (&mount.path, &mount.kind)).collect();
    mounts.sort();
    for (path, kind) in mounts {
        writeln!(out, "mount {kind} {path}").unwrap();
    }
    let names = log.names().unwrap();
    for (id, name) in names.iter().collect::<BTreeMap<_, _>>() {
        writeln!(out, "name {id} {name}").unwrap();
    }
    out
}

#[test]
fn pydarshan_reads_the_same() {
    let Some(python) = python() else {
        println!("skipped: Python has no module darshan (pip install darshan)");
        return;
    };
    let mut logs: Vec<PathBuf> = directory(&data("")).collect();
    if let Some(more) = std::env::var_os("FOREBAY_DARSHAN_LOGS") {
        logs.extend(directory(Path::new(&more)));
    }
    for path in logs {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pydarshan_dump.py");
        let found = Command::new(&python).arg(script).arg(&path).output().unwrap();
        let errors = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success(), "{}: {errors}", path.display());
        let (ours, theirs) = (dump(&path), String::from_utf8_lossy(&found.stdout).into_owned());
        let both = ours.lines().zip(theirs.lines()).enumerate();
        for (number, (ours, theirs)) in both {
            assert_eq!(ours, theirs, "{}: line {}", path.display(), number + 1);
        }
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{}", path.display());
        println!("{}: {} lines are the same", path.display(), ours.lines().count());
    }
}
