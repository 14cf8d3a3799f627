//! Staging as a user meets it: killed in the middle, from a list that is wrong, into an instance
//! that is too small.
#![allow(
    clippy::unwrap_used,
    reason = "a test: what cannot be unwrapped has failed"
)]

mod forebay;

use forebay::Place;
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

fn furnish(root: &Path) {
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

fn same(a: &Path, b: &Path) {
    let diff = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([a, b])
        .output()
        .unwrap();
    assert!(
        diff.status.success(),
        "{}",
        String::from_utf8_lossy(&diff.stdout)
    );
}

/// Entries below a directory.
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

/// Waits until `begun` and ends the process with SIGKILL, which must be all it takes.
fn kill_when(child: &mut Child, begun: impl Fn() -> bool) {
    let began = Instant::now();
    while !begun() {
        let over = child.try_wait().unwrap();
        assert!(over.is_none(), "it ended by itself: {over:?}");
        assert!(began.elapsed() < Duration::from_secs(60), "it never began");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    let killed = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(
            killed.elapsed() < Duration::from_secs(5),
            "a killed process hangs"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn killed_while_it_stages_in_or_out_a_job_loses_nothing() {
    let place = Place::new();
    furnish(&place.path().join("in"));
    place.write("job.sh", THERE_AND_BACK);
    let run = "run --pool pool --pool-size 512MiB job.sh";
    // In: a part of the files is in the pool.
    let objects = place.path().join("pool/flash/objects");
    let mut child = place.command(run).spawn().unwrap();
    kill_when(&mut child, || count(&objects) > FILES / 10);
    assert!(count(&objects) < FILES, "all of it was staged already");
    let said = place.ok("recover --pool pool");
    assert!(said.out.contains("had not run"), "{}", said.out);
    assert!(!place.path().join("out").exists());
    // Out: a part of the files is there again. Recovery is killed, too.
    let out = place.path().join("out");
    let mut child = place.command(run).spawn().unwrap();
    kill_when(&mut child, || count(&out) > FILES / 10);
    let first = count(&out);
    assert!(first < FILES, "all of it was staged already");
    let mut child = place.command("recover --pool pool").spawn().unwrap();
    kill_when(&mut child, || count(&out) > first + FILES / 10);
    let said = place.ok("recover --pool pool");
    assert!(said.out.contains("staged out"), "{}", said.out);
    same(&place.path().join("in"), &out);
    let links = fs::metadata(out.join("h5")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&links), 2);
    let status = place.ok("status --pool pool").out;
    assert!(!status.contains("instance"), "{status}");
    assert_eq!(count(&place.path().join("pool/journals")), 0);
}

#[test]
fn lists_that_lead_elsewhere_are_refused_and_nothing_is_lost() {
    let place = Place::new();
    let here = place.path().display().to_string();
    place.write("a", "a\n");
    let lists = [
        (
            "$DW_JOB_STRIPED/../../secret\n",
            "leaves the instance with `..`",
        ),
        (&format!("{here}/a\n"), "names paths such as"),
        ("$DW_PERSISTENT_STRIPED_other/a\n", "several instances"),
        ("$DW_JOB_STRIPED/out\n", "leads out of the instance"),
        ("$DW_JOB_STRIPED/up\n", "leads out of the instance"),
    ];
    for (list, reason) in lists {
        place.write("list", list);
        place.write(
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
        fs::create_dir_all(place.path().join("results")).unwrap();
        let said = place.run("run --pool pool --pool-size 64MiB job.sh");
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains(reason), "{list}: {}", said.err);
        assert!(said.err.contains("are kept in the pool"), "{}", said.err);
        assert_eq!(place.read("result"), "result\n", "the other stage went out");
        assert_eq!(count(&place.path().join("results")), 0);
        place.ok("recover --pool pool --discard");
    }
    // In: paths inside the instance, and ones that are not there.
    for (list, reason) in [
        ("$DW_JOB_STRIPED/a\n".to_owned(), "parallel file system"),
        (format!("{here}/a\n{here}/gone\n"), "gone: does not exist"),
        (
            format!("{here}/a\n{here}/d/a\n"),
            "two files are called `a`",
        ),
    ] {
        place.write("list", &list);
        place.write(
            "in.sh",
            "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_in type=list source=%d/list destination=$DW_JOB_STRIPED/
touch it-ran
",
        );
        let said = place.run("run --pool pool in.sh");
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains(reason), "{list}: {}", said.err);
        assert!(!place.path().join("it-ran").exists());
    }
    assert_eq!(place.read("a"), "a\n");
}

/// Where a list lies on the parallel file system, only the list says from which instance: files of
/// the same names in another one are not taken for them.
#[test]
fn a_list_outside_names_files_of_the_jobs_own_instance() {
    let place = Place::new();
    place.write(
        "create.sh",
        "#!/bin/sh\n#DW create_persistent name=dbs capacity=16MiB type=scratch access_mode=striped\n",
    );
    place.ok("run --pool pool --pool-size 64MiB create.sh");
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
        place.write("job.sh", &text);
    };
    fs::create_dir(place.path().join("results")).unwrap();
    for (own, list, reason) in [
        (own, "$DW_PERSISTENT_STRIPED_dbs/a", "`$DW_JOB_STRIPED`"),
        ("", "$DW_JOB_STRIPED/a", "`$DW_PERSISTENT_STRIPED_dbs`"),
    ] {
        script(own);
        place.write("list", list);
        let said = place.run("run --pool pool job.sh");
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains(reason), "{}", said.err);
        assert!(!place.path().join("results/a").exists());
        place.ok("recover --pool pool --discard");
    }
    for (own, list, from) in [
        (own, "$DW_JOB_STRIPED/a", "/ss/\n"),
        ("", "$DW_PERSISTENT_STRIPED_dbs/a", "/dbs_ss/\n"),
    ] {
        script(own);
        place.write("list", list);
        place.ok("run --pool pool job.sh");
        let result = place.read("results/a");
        assert!(result.ends_with(from), "{result}");
    }
}

#[test]
fn input_that_does_not_fit_is_told_before_the_job_runs() {
    let place = Place::new();
    fs::create_dir(place.path().join("in")).unwrap();
    fs::write(place.path().join("in/big"), vec![1; 40 << 20]).unwrap();
    place.write(
        "job.sh",
        "#!/bin/sh
#DW jobdw capacity=16MiB type=scratch access_mode=striped
#DW stage_in type=directory source=%d/in destination=$DW_JOB_STRIPED/in
touch it-ran
",
    );
    let said = place.run("run --pool pool --pool-size 64MiB job.sh");
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(
        said.err.contains("stage_in of line 3:") && said.err.contains("no space left there"),
        "{}",
        said.err
    );
    assert!(!place.path().join("it-ran").exists());
    assert_eq!(
        fs::metadata(place.path().join("in/big")).unwrap().len(),
        40 << 20
    );
    let status = place.ok("status --pool pool").out;
    assert!(!status.contains("instance"), "{status}");
}

#[test]
fn a_load_balanced_instance_is_filled_and_then_read_only() {
    let place = Place::new();
    furnish(&place.path().join("in"));
    place.write(
        "job.sh",
        "#!/bin/sh
#DW jobdw capacity=256MiB type=scratch access_mode=ldbalance
#DW stage_in type=directory source=%d/in destination=$DW_JOB_LDBALANCE/data
diff -r --no-dereference in ${DW_JOB_LDBALANCE}data && echo same
touch ${DW_JOB_LDBALANCE}data/new 2>&1
echo \"striped: $DW_JOB_STRIPED\"
",
    );
    let said = place.ok("run --pool pool --pool-size 512MiB job.sh").out;
    assert!(said.starts_with("same\n"), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
    assert!(said.ends_with("striped: \n"), "{said}");
}

#[test]
fn nothing_is_recovered_where_nothing_is() {
    let place = Place::new();
    for line in ["recover --pool none", "destroy-persistent p --pool none"] {
        let said = place.run(line);
        assert_eq!(said.code, Some(1), "{}", said.err);
        assert!(said.err.contains("there is none there yet"), "{}", said.err);
    }
    assert!(!place.path().join("none").exists());
}

/// On one processor, so that there is something to be seen.
#[test]
fn what_a_stage_is_doing_is_seen_while_it_does_it() {
    const SIZE: u64 = 512 << 20;
    let place = Place::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| memory.path().join(name).display().to_string();
    fs::write(path("in"), vec![7; SIZE as usize]).unwrap();
    let pool = format!("--pool {}", path("pool"));
    place.ok(&format!(
        "create-persistent data --capacity 1GiB {pool} --pool-size 2GiB"
    ));
    place.ok(&format!(
        "stage in {pool} --instance data {} in",
        path("in")
    ));
    let line = format!("stage out {pool} --instance data in {}", path("out"));
    let program = env!("CARGO_BIN_EXE_forebay");
    // Standard error is a terminal.
    let output = Command::new("script")
        .args([
            "-qefc",
            &format!("taskset -c 0 {program} {line}"),
            "/dev/null",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let first = |what: &str| {
        let found = text.find(what);
        found.unwrap_or_else(|| panic!("no `{what}` in {text}"))
    };
    let copying = first("out: copying ");
    assert!(text.contains(" of 512 MiB"), "{text}");
    let end = first("staged 1 file, 512 MiB; copied and synced in ");
    assert!(copying < end, "{text}");
    // Reading back may be over between two looks.
    if let Some(reading) = text.find("out: reading back ") {
        assert!(copying < reading && reading < end, "{text}");
    }
    assert!(text.contains(", read back 512 MiB in "), "{text}");
    assert_eq!(fs::metadata(path("out")).unwrap().len(), SIZE);
}
