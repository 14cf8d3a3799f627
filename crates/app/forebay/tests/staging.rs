//! Staging by job scripts: killed processes, invalid lists, full instances, progress.

use crate::forebay;
use forebay::WorkDir;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const FILES: usize = 2000;

/// Copies `in` into the instance, and that out to `out`.
const THERE_AND_BACK: &str = "#!/bin/sh
#DW jobdw capacity=256MiB type=scratch access_mode=striped
#DW stage_in type=directory source=%d/in destination=$DW_JOB_STRIPED/data
#DW stage_out type=directory source=$DW_JOB_STRIPED/data destination=%d/out
test -e ${DW_JOB_STRIPED}data/link
";

fn make_input(root: &Path) {
    for directory in 0..20 {
        let path = root.join(format!("d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..FILES / 20 {
            let text = format!("{directory} {file}\n").repeat(file % 50);
            fs::write(path.join(format!("f{file}")), text).unwrap();
        }
        fs::hard_link(path.join("f7"), root.join(format!("h{directory}"))).unwrap();
    }
    std::os::unix::fs::symlink("d3/f9", root.join("link")).unwrap();
    fs::write(root.join("large"), vec![7; 40 << 20]).unwrap();
}

fn assert_same_tree(a: &Path, b: &Path) {
    let diff = Command::new("diff").args(["-r", "--no-dereference"]).args([a, b]).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

/// Number of entries below a directory.
fn count(root: &Path) -> usize {
    let Ok(entries) = fs::read_dir(root) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| {
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            1 + if directory { count(&entry.path()) } else { 0 }
        })
        .sum()
}

/// Waits until `condition` and kills the process with SIGKILL.
fn kill_when(child: &mut Child, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        let over = child.try_wait().unwrap();
        assert!(over.is_none(), "the process has exited: {over:?}");
        assert!(start.elapsed() < Duration::from_secs(60), "timeout");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    let killed = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(killed.elapsed() < Duration::from_secs(5), "the killed process still exists");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn job_killed_during_stage_in_or_stage_out_is_recovered_completely() {
    let dir = WorkDir::new();
    make_input(&dir.path().join("in"));
    dir.write("job.sh", THERE_AND_BACK);
    let run = "run --pool pool --pool-size 512MiB job.sh";
    // Killed during stage-in, with some files in the pool.
    let objects = dir.path().join("pool/flash/objects");
    let mut child = dir.command(run).spawn().unwrap();
    kill_when(&mut child, || count(&objects) > FILES / 10);
    assert!(count(&objects) < FILES, "everything is staged already");
    let output = dir.expect_success("recover --pool pool");
    assert!(output.stdout.contains("had not run"), "{}", output.stdout);
    assert!(!dir.path().join("out").exists());
    // Killed during stage-out, with some files copied; recovery is killed as well.
    let out = dir.path().join("out");
    let mut child = dir.command(run).spawn().unwrap();
    kill_when(&mut child, || count(&out) > FILES / 10);
    let first = count(&out);
    assert!(first < FILES, "everything is staged already");
    let mut child = dir.command("recover --pool pool").spawn().unwrap();
    kill_when(&mut child, || count(&out) > first + FILES / 10);
    let output = dir.expect_success("recover --pool pool");
    assert!(output.stdout.contains("staged out"), "{}", output.stdout);
    assert_same_tree(&dir.path().join("in"), &out);
    let links = fs::metadata(out.join("h5")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&links), 2);
    let status = dir.expect_success("status --pool pool").stdout;
    assert!(!status.contains("instance"), "{status}");
    assert_eq!(count(&dir.path().join("pool/journals")), 0);
}

#[test]
fn list_with_paths_outside_the_instance_is_refused_and_results_are_kept() {
    let dir = WorkDir::new();
    let here = dir.path().display().to_string();
    dir.write("a", "a\n");
    let lists = [
        ("$DW_JOB_STRIPED/../../secret\n", "leaves the instance with `..`"),
        (&format!("{here}/a\n"), "names paths such as"),
        ("$DW_PERSISTENT_STRIPED_other/a\n", "several instances"),
        ("$DW_JOB_STRIPED/out\n", "leads out of the instance"),
        ("$DW_JOB_STRIPED/up\n", "leads out of the instance"),
    ];
    for (list, reason) in lists {
        dir.write("list", list);
        dir.write(
            "job.sh",
            "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_out type=list source=$DW_JOB_STRIPED/list destination=%d/results
#DW stage_out type=file source=$DW_JOB_STRIPED/result destination=%d/result
cp list ${DW_JOB_STRIPED}list
echo result >${DW_JOB_STRIPED}result
ln -s $PWD/a ${DW_JOB_STRIPED}out
ln -s ../../../../../../../../$PWD/a ${DW_JOB_STRIPED}up
",
        );
        fs::create_dir_all(dir.path().join("results")).unwrap();
        let output = dir.run("run --pool pool --pool-size 64MiB job.sh");
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(output.stderr.contains(reason), "{list}: {}", output.stderr);
        assert!(output.stderr.contains("are kept in the pool"), "{}", output.stderr);
        assert_eq!(dir.read("result"), "result\n", "the other stage succeeded");
        assert_eq!(count(&dir.path().join("results")), 0);
        dir.expect_success("recover --pool pool --discard");
    }
    // Stage-in: paths inside the instance, missing and ambiguous ones.
    for (list, reason) in [
        ("$DW_JOB_STRIPED/a\n".to_owned(), "parallel file system"),
        (format!("{here}/a\n{here}/gone\n"), "gone: does not exist"),
        (format!("{here}/a\n{here}/d/a\n"), "two files are called `a`"),
    ] {
        dir.write("list", &list);
        dir.write(
            "in.sh",
            "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_in type=list source=%d/list destination=$DW_JOB_STRIPED/
touch it-ran
",
        );
        let output = dir.run("run --pool pool in.sh");
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(output.stderr.contains(reason), "{list}: {}", output.stderr);
        assert!(!dir.path().join("it-ran").exists());
    }
    assert_eq!(dir.read("a"), "a\n");
}

/// A list on the parallel file system names the instance only in its paths: files of the same
/// names in another instance must not be staged.
#[test]
fn list_on_the_pfs_selects_the_instance_by_its_variable() {
    let dir = WorkDir::new();
    dir.write(
        "create.sh",
        "#!/bin/sh\n#DW create_persistent name=dbs capacity=16MiB type=scratch access_mode=striped\n",
    );
    dir.expect_success("run --pool pool --pool-size 64MiB create.sh");
    let own = "#DW jobdw capacity=16MiB type=scratch access_mode=striped";
    let script = |own: &str| {
        let text = format!(
            "#!/bin/sh
#DW persistentdw name=dbs
{own}
#DW stage_out type=list source=%d/list destination=%d/results
for root in $DW_JOB_STRIPED $DW_PERSISTENT_STRIPED_dbs; do echo $root >${{root}}a; done
"
        );
        dir.write("job.sh", &text);
    };
    fs::create_dir(dir.path().join("results")).unwrap();
    for (own, list, reason) in [
        (own, "$DW_PERSISTENT_STRIPED_dbs/a", "`$DW_JOB_STRIPED`"),
        ("", "$DW_JOB_STRIPED/a", "`$DW_PERSISTENT_STRIPED_dbs`"),
    ] {
        script(own);
        dir.write("list", list);
        let output = dir.run("run --pool pool job.sh");
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(output.stderr.contains(reason), "{}", output.stderr);
        assert!(!dir.path().join("results/a").exists());
        dir.expect_success("recover --pool pool --discard");
    }
    for (own, list, from) in
        [(own, "$DW_JOB_STRIPED/a", "/ss/\n"), ("", "$DW_PERSISTENT_STRIPED_dbs/a", "/dbs_ss/\n")]
    {
        script(own);
        dir.write("list", list);
        dir.expect_success("run --pool pool job.sh");
        let result = dir.read("results/a");
        assert!(result.ends_with(from), "{result}");
    }
}

#[test]
fn input_larger_than_the_instance_fails_before_the_job_runs() {
    let dir = WorkDir::new();
    fs::create_dir(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/big"), vec![1; 40 << 20]).unwrap();
    dir.write(
        "job.sh",
        "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_in type=directory source=%d/in destination=$DW_JOB_STRIPED/in
touch it-ran
",
    );
    let output = dir.run("run --pool pool --pool-size 64MiB job.sh");
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(
        output.stderr.contains("stage_in of line 3:")
            && output.stderr.contains("no space left there"),
        "{}",
        output.stderr
    );
    assert!(!dir.path().join("it-ran").exists());
    assert_eq!(fs::metadata(dir.path().join("in/big")).unwrap().len(), 40 << 20);
    let status = dir.expect_success("status --pool pool").stdout;
    assert!(!status.contains("instance"), "{status}");
}

#[test]
fn load_balanced_instance_is_filled_and_then_read_only() {
    let dir = WorkDir::new();
    make_input(&dir.path().join("in"));
    dir.write(
        "job.sh",
        "#!/bin/sh
#DW jobdw capacity=256MiB type=scratch access_mode=ldbalance
#DW stage_in type=directory source=%d/in destination=$DW_JOB_LDBALANCE/data
diff -r --no-dereference in ${DW_JOB_LDBALANCE}data && echo same
touch ${DW_JOB_LDBALANCE}data/new 2>&1
echo \"striped: $DW_JOB_STRIPED\"
",
    );
    let output = dir.expect_success("run --pool pool --pool-size 512MiB job.sh").stdout;
    assert!(output.starts_with("same\n"), "{output}");
    assert!(output.contains("Read-only file system"), "{output}");
    assert!(output.ends_with("striped: \n"), "{output}");
}

#[test]
fn recover_without_a_pool_fails_and_creates_none() {
    let dir = WorkDir::new();
    for line in ["recover --pool none", "destroy-persistent p --pool none"] {
        let output = dir.run(line);
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(output.stderr.contains("there is none there yet"), "{}", output.stderr);
    }
    assert!(!dir.path().join("none").exists());
}

/// On one processor and with many files, so that the stage takes several times as long as the time between
/// two reports of the storage node.
#[test]
fn stage_shows_its_phase_while_it_runs() {
    const FILES: u64 = 60_000;
    const FILE_SIZE: u64 = 1024;
    let dir = WorkDir::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| memory.path().join(name).display().to_string();
    fs::create_dir(path("in")).unwrap();
    for file in 0..FILES {
        fs::write(path(&format!("in/{file}")), [7; FILE_SIZE as usize]).unwrap();
    }
    let pool = format!("--pool {}", path("pool"));
    dir.expect_success(&format!("create-persistent data --capacity 1GiB {pool} --pool-size 2GiB"));
    let stage = format!("{pool} --instance data --type directory");
    dir.expect_success(&format!("stage in {stage} {} in", path("in")));
    let line = format!("stage out {stage} in {}", path("out"));
    let program = env!("CARGO_BIN_EXE_forebay");
    // Standard error is a terminal.
    let output = Command::new("script")
        .args(["-qefc", &format!("taskset -c 0 {program} {line}"), "/dev/null"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let end = text.find("staged 60,000 files, 58.6 MiB; copied and synced in ");
    let end = end.unwrap_or_else(|| panic!("no result in {text}"));
    // `copying 120 of 60000 files, 120 KiB of 58.6 MiB`, with `+` while files are found.
    let files_found = |update: &str| -> Option<u64> {
        let (_, total) = update.split_once(" of ")?;
        let (total, _) = total.split_once(" files, ")?;
        total.trim_end_matches('+').parse().ok()
    };
    let updates = text[..end].split("out: copying ").skip(1);
    let most_found = updates.filter_map(files_found).max();
    assert!(most_found.is_some_and(|found| 0 < found && found <= FILES), "{text}");
    // Reading back may end between two updates.
    if let Some(reading) = text.find("out: reading back ") {
        assert!(text.find("out: copying ") < Some(reading) && reading < end, "{text}");
    }
    assert!(text.contains(", read back 58.6 MiB in "), "{text}");
    assert_eq!(fs::read_dir(path("out")).unwrap().count() as u64, FILES);
}
