//! The interception library in unmodified programs: results are those through the mount.

use crate::cluster;
use crate::forebay;
use cluster::site::{Site, USER, expect_success};
use cluster::{interception_library, text_of};
use forebay::WorkDir;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Operations of one run of `random_operations.py`.
const OPERATIONS: u32 = 400;
/// Seeds of the runs.
const SEEDS: u32 = 10;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interception").join(name)
}

/// Compiles `calls.c` to `program`.
fn compile_calls(program: &Path) {
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-result", "-o"]).arg(program);
    let compiled = compiler.arg(source("calls.c")).output().unwrap();
    assert!(compiled.status.success(), "{}", text_of(&compiled));
}

/// Runs a job script with an instance of 256 MiB at `$B` and the library at `$LIBRARY`.
fn job(dir: &WorkDir, body: &str) -> String {
    let directive = "#DW jobdw capacity=256MiB type=scratch access_mode=striped";
    let library = interception_library();
    let head = format!("B=$DW_JOB_STRIPED LIBRARY={}", library.display());
    dir.write("job.sh", &format!("#!/bin/bash\n{directive}\nset -e\n{head}\n{body}"));
    dir.expect_success("run --pool pool --pool-size 512MiB job.sh").stdout
}

/// Asserts that two texts have the same lines.
fn assert_same_lines(found: &str, expected: &str) {
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {}", number + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

#[test]
fn calls_have_the_same_results_with_the_library_as_on_other_file_systems() {
    let dir = WorkDir::new();
    compile_calls(&dir.path().join("calls"));
    let printed = job(
        &dir,
        "mkdir plain $B/mount $B/library
./calls plain > plain.out 2> plain.err < /dev/null
./calls $B/mount > mount.out 2> mount.err < /dev/null
LD_PRELOAD=$LIBRARY ./calls $B/library > library.out 2> library.err < /dev/null
cat $B/library/at-exit
diff -r $B/mount $B/library && echo same contents",
    );
    assert_eq!(printed, "flushed by exit\nsame contents\n");
    assert_same_lines(&dir.read("mount.out"), &dir.read("plain.out"));
    assert_same_lines(&dir.read("library.out"), &dir.read("plain.out"));
    assert!(dir.read("mount.out").lines().count() > 150);
    assert_eq!(dir.read("mount.err"), "library 0\n");
    assert_eq!(dir.read("library.err"), "library 1\n", "the library opened the file");
}

#[test]
fn random_operations_have_the_same_results_on_every_file_system() {
    let dir = WorkDir::new();
    fs::copy(source("random_operations.py"), dir.path().join("operations.py")).unwrap();
    let printed = job(
        &dir,
        &format!(
            "export PYTHONHASHSEED=0
for seed in $(seq {SEEDS}); do
    rm -rf $B/* plain
    mkdir $B/mount $B/library plain
    python3 operations.py plain $seed {OPERATIONS} > plain.out
    python3 operations.py $B/mount $seed {OPERATIONS} > mount.out
    LD_PRELOAD=$LIBRARY python3 operations.py $B/library $seed {OPERATIONS} > library.out
    grep -c . plain.out
    diff plain.out mount.out
    diff plain.out library.out
    diff -r plain $B/library
done"
        ),
    );
    assert_eq!(printed, format!("{OPERATIONS}\n").repeat(SEEDS as usize));
}

#[test]
fn programs_copy_trees_completely() {
    let dir = WorkDir::new();
    let tree = dir.path().join("tree");
    for name in ["a/b/c", "empty"] {
        fs::create_dir_all(tree.join(name)).unwrap();
    }
    for (index, size) in [0, 1, 100, 65_536, 3_000_000].into_iter().enumerate() {
        let content: Vec<u8> = (0..size).map(|byte| (byte * 31 + index) as u8).collect();
        fs::write(tree.join(format!("a/f{index}")), &content).unwrap();
        fs::write(tree.join(format!("a/b/c/g{index}")), &content).unwrap();
    }
    std::os::unix::fs::symlink("a/f2", tree.join("link")).unwrap();
    fs::hard_link(tree.join("a/f3"), tree.join("a/linked")).unwrap();
    let printed = job(
        &dir,
        "export LD_PRELOAD=$LIBRARY
list() { (cd $1 && find . -printf '%p %y %m %s %l %T@\\n' | sed 's/ \\(.*\\) d \\([0-7]*\\) [0-9]*/ \\1 d \\2/' | sort); }
cp -a tree $B/cp
rsync -aH tree/ $B/rsync
tar -C tree -cf $B/tree.tar . && mkdir $B/tar && tar -C $B/tar -xpf $B/tree.tar
for copy in cp rsync tar; do
    diff -r tree $B/$copy
    find $B/$copy -type f -links 2 | wc -l
done
cp -a $B/cp back && diff -r tree back
sort -R tree/a/f4 | sort | md5sum > $B/sorted && sort tree/a/f4 | md5sum | diff - $B/sorted
grep -c . $B/sorted
mv $B/cp $B/moved && diff -r tree $B/moved && rm -r $B/moved && ls $B",
    );
    assert_eq!(printed, "2\n2\n2\n1\nrsync\nsorted\ntar\ntree.tar\n");
}

#[test]
fn killed_program_leaves_what_it_has_written() {
    let dir = WorkDir::new();
    dir.write(
        "write.py",
        "import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(fd, b'x' * 100_000)
os.kill(os.getpid(), 9)
",
    );
    let printed = job(
        &dir,
        "LD_PRELOAD=$LIBRARY python3 write.py $B/file || echo killed
stat -c %s $B/file
tr -d x < $B/file | wc -c
rm $B/file && ls $B | wc -l",
    );
    assert_eq!(printed, "killed\n100000\n0\n0\n");
}

#[test]
fn programs_without_an_instance_run_unchanged() {
    let dir = WorkDir::new();
    let run = |value: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo text > file && cat file && ls"]).current_dir(dir.path());
        command.env("LD_PRELOAD", interception_library()).env("FOREBAY_PRELOAD", value);
        command.output().unwrap()
    };
    assert_eq!(expect_success(&run("")), "text\nfile\n");
    assert_eq!(expect_success(&run("off")), "text\nfile\n");
}

#[test]
fn users_of_other_hosts_reach_the_storage_nodes_themselves() {
    let site = Site::new();
    let pfs = site.cluster.pfs();
    compile_calls(&pfs.join("calls"));
    let library = pfs.join("library.so");
    fs::copy(interception_library(), &library).unwrap();
    let script = pfs.join("job.sh");
    let (program, library) = (pfs.join("calls"), library.display().to_string());
    fs::write(
        &script,
        format!(
            "#!/bin/sh
#DW jobdw capacity=96MiB type=scratch access_mode=striped
OUT=$(mktemp -d) && cd $OUT && trap 'rm -r $OUT' EXIT
mkdir $DW_JOB_STRIPED/mount $DW_JOB_STRIPED/library
{0} $DW_JOB_STRIPED/mount > mount.out 2> mount.err < /dev/null
LD_PRELOAD={library} {0} $DW_JOB_STRIPED/library > library.out 2> library.err < /dev/null
diff mount.out library.out && diff -r $DW_JOB_STRIPED/mount $DW_JOB_STRIPED/library && echo same
cat mount.err library.err
",
            program.display()
        ),
    )
    .unwrap();
    let output = site.forebay(2, USER, &["run", script.to_str().unwrap()]);
    let text = expect_success(&output);
    assert!(text.contains("same\nlibrary 0\nlibrary 1\n"), "{text}");
}

#[test]
fn small_writes_over_the_network_are_complete_however_a_program_ends() {
    let site = Site::new();
    let pfs = site.cluster.pfs();
    let library = pfs.join("library.so");
    fs::copy(interception_library(), &library).unwrap();
    fs::copy(source("small_writes.py"), pfs.join("small_writes.py")).unwrap();
    let script = pfs.join("job.sh");
    // A killed process loses nothing only if it delays nothing.
    let ways =
        ["exit", "close", "dup", "fork", "spawn", "rename", "exec", "_exit", "abort", "kill"];
    fs::write(
        &script,
        format!(
            "#!/bin/bash
#DW jobdw capacity=16MiB type=scratch access_mode=striped
cd $DW_JOB_STRIPED
ulimit -c 0
python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(250)) * 2000)' > expected
for way in {}; do
    if [ $way = kill ]; then export FOREBAY_DELAYED_WRITES=off; fi
    LD_PRELOAD={} python3 {} $way $way > /dev/null 2> /dev/null
    cmp expected $way && echo $way complete
    rm $way
done
",
            ways.join(" "),
            library.display(),
            pfs.join("small_writes.py").display(),
        ),
    )
    .unwrap();
    let output = site.forebay(2, USER, &["run", script.to_str().unwrap()]);
    let text = expect_success(&output);
    for way in ways {
        assert!(text.contains(&format!("{way} complete\n")), "{text}");
    }
}
