//! MPI programs that write through the interception library to logs in an instance.
//!
//! Needs root and both MPI libraries: it creates network namespaces.

use crate::cluster;
use crate::mpiio_log::run_job_in;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::built_program;
use cluster::site::Site;
use cluster::{text_of, wait_until};

/// Whether the MPI libraries are there. They must be, unless `FOREBAY_TESTS_WITHOUT_MPI` is set.
fn has_mpi() -> bool {
    let has = |name: &str| Command::new(name).arg("--version").output().is_ok();
    let found = has("mpicc.openmpi") && has("mpicc.mpich");
    assert!(
        found || std::env::var_os("FOREBAY_TESTS_WITHOUT_MPI").is_some(),
        "Open MPI and MPICH are not installed (`scripts/setup.sh test`)"
    );
    found
}

/// Compiles a program for an MPI library.
fn compile(mpi: &str, source: &Path, to: &Path) -> PathBuf {
    let program = to.join(format!("program.{mpi}"));
    let mut compiler = Command::new(format!("mpicc.{mpi}"));
    let output = compiler.args(["-O1", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    program
}

/// The start of a command line that runs a program on so many processes.
fn launcher(mpi: &str, ranks: u32) -> String {
    match mpi {
        "openmpi" => format!(
            "mpirun.openmpi --allow-run-as-root --oversubscribe --mca btl self,vader -n {ranks}"
        ),
        _ => format!("mpiexec.mpich -n {ranks}"),
    }
}

#[test]
fn stage_out_brings_what_a_program_has_logged_in_the_instance_of_its_job() {
    if !has_mpi() {
        return;
    }
    let library = built_program("libforebay_mpiio.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("../../bridges/mpiio/tests/programs/codes.c");
    for mpi in ["openmpi", "mpich"] {
        for case in ["flash", "wrf"] {
            let home = tempfile::tempdir().unwrap();
            let home = home.path();
            let pfs = home.join("pfs");
            fs::create_dir(&pfs).unwrap();
            let program = compile(mpi, &source, home);
            let run = format!("{} {} {case}", launcher(mpi, 4), program.display());
            let mut plain = Command::new("sh");
            plain.args(["-ec", &format!("{run} plain")]).current_dir(home).env("TMPDIR", home);
            let plain = plain.output().unwrap();
            assert!(plain.status.success(), "{}", text_of(&plain));
            let (directory, statistics) = (pfs.display(), home.join("statistics.json"));
            let script = format!(
                "#!/bin/sh\n\
                 #DW jobdw capacity=256MiB type=scratch access_mode=striped\n\
                 #DW stage_out type=log source=$DW_JOB_STRIPED/logs destination={directory}\n\
                 set -e\n\
                 mkdir $DW_JOB_STRIPED/logs\n\
                 export TMPDIR={} FOREBAY_MPIIO='*/pfs/data' FOREBAY_LOG_FLUSH=stage-out\n\
                 export FOREBAY_LOG_DIR=$DW_JOB_STRIPED/logs FOREBAY_MPIIO_STATISTICS={}\n\
                 LD_PRELOAD={} {run} {directory}/data\n\
                 [ -s {directory}/data ] || echo nothing is applied\n",
                home.display(),
                statistics.display(),
                library.display(),
            );
            fs::write(home.join("job.sh"), script).unwrap();
            let output = run_job_in(home);
            let text = text_of(&output);
            assert!(output.status.success(), "{mpi}, {case}: {text}");
            assert!(text.contains("nothing is applied"), "{mpi}, {case}: {text}");
            let counts: serde_json::Value =
                serde_json::from_slice(&fs::read(&statistics).unwrap()).unwrap();
            let counts = &counts["files"][pfs.join("data").to_str().unwrap()];
            assert!(counts["logged_requests"].as_u64().unwrap() > 20, "{mpi}, {case}: {counts}");
            assert_eq!(counts["merged_writes"], 0, "{mpi}, {case}: {counts}");
            let (expected, found) = (fs::read(home.join("plain")), fs::read(pfs.join("data")));
            assert!(expected.unwrap() == found.unwrap(), "{mpi}, {case}: the files differ");
        }
    }
}

/// The bytes of a record of `mpiio_syncs.c`.
const RECORD: usize = 1000;
/// Processes of it.
const RANKS: usize = 2;

/// The number of records of each process that are synced.
fn synced(state: &Path) -> Option<usize> {
    fs::read_to_string(state.with_extension("synced")).ok()?.trim().parse().ok()
}

#[test]
fn records_synced_to_a_pool_are_replayed_after_kill_9_of_its_storage_daemons() {
    if !has_mpi() {
        return;
    }
    let mut site = Site::new();
    let pfs = site.cluster.pfs();
    let results = site.make_results_directory();
    let (target, state) = (results.join("data"), results.join("state"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpiio_syncs.c");
    let program = compile("mpich", &source, &pfs);
    let script = format!(
        "#!/bin/sh\n\
         #DW jobdw capacity=96MiB type=scratch access_mode=striped\n\
         set -e\n\
         mkdir $DW_JOB_STRIPED/logs\n\
         export FOREBAY_MPIIO=data FOREBAY_LOG_DIR=$DW_JOB_STRIPED/logs\n\
         LD_PRELOAD={library} {run} {program} {target} {state} &\n\
         until [ -s {state}.synced ]; do sleep 0.05; done\n\
         touch {pfs}/started\n\
         until [ -e {pfs}/go ]; do sleep 0.05; done\n\
         kill -9 $(cat {state}.pid.*)\n\
         wait $! || true\n\
         [ -s {target} ] || echo nothing is applied\n\
         {forebay} log list $DW_JOB_STRIPED/logs\n\
         {forebay} log replay $DW_JOB_STRIPED/logs\n",
        library = built_program("libforebay_mpiio.so").display(),
        run = launcher("mpich", RANKS as u32),
        program = program.display(),
        target = target.display(),
        state = state.display(),
        pfs = pfs.display(),
        forebay = env!("CARGO_BIN_EXE_forebay"),
    );
    let mut job = site.start_job(&script);
    job.wait_until_running(&site);
    wait_until("more is synced", || (synced(&state)? >= 40).then_some(()));
    for daemon in &mut site.storage {
        daemon.kill();
    }
    let before = synced(&state).unwrap();
    for host in 0..3 {
        site.storage[host] = site.host(host).start_daemon(&["storage", "--config", site.file()]);
    }
    wait_until("the program continues", || (synced(&state)? >= before + 40).then_some(()));
    let text = job.finish(&site);
    assert!(text.contains("nothing is applied"), "{text}");
    assert_eq!(text.matches("interrupted").count(), RANKS, "{text}");
    let count = synced(&state).unwrap() * RANKS;
    let file = fs::read(&target).unwrap();
    assert!(file.len() >= count * RECORD, "{} bytes of {count} records", file.len());
    for (number, record) in file.chunks(RECORD).take(count).enumerate() {
        let expected = 1 + (number % 250) as u8;
        assert!(record.iter().all(|byte| *byte == expected), "record {number} of {count}");
    }
}
