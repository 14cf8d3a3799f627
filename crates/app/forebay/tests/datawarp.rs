//! libdatawarp, called by C programs in a job.

use crate::forebay;
use crate::library;
use forebay::WorkDir;
use forebay_net::job_socket::call_service;
use forebay_protocol::staging::{JobRequest, PathKind, StagingCall, StagingReply};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A directory with input, the installed library, and `dw`, a C program that makes
/// the call named by its arguments.
fn workplace() -> WorkDir {
    let dir = WorkDir::new();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("in/tree/deep")).unwrap();
    dir.write("in/a", "a\n");
    dir.write("in/b", "b\n");
    dir.write("in/tree/x", "x\n");
    dir.write("in/tree/deep/y", "y\n");
    fs::write(path("in/big"), vec![7; 100 << 20]).unwrap();
    library::install(dir.path());
    library::compile(
        dir.path(),
        &library::root().join("crates/app/forebay/tests/datawarp.c"),
        "dw",
    );
    dir
}

const HEAD: &str = "#!/bin/sh
#DW jobdw capacity=256MiB type=scratch access_mode=striped,private
B=$DW_JOB_STRIPED P=$PWD
PATH=$PWD:$PATH
";

/// Runs a job script and returns the lines that it printed.
fn job(dir: &WorkDir, text: &str) -> Vec<String> {
    dir.write("job.sh", &format!("{HEAD}{text}"));
    let output = dir.expect_success("run --pool pool --pool-size 512MiB job.sh");
    output.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn running_job_stages_in_and_out() {
    let dir = workplace();
    let printed = job(
        &dir,
        "set -e
dw in ${B}a $P/in/a
dw wait ${B}a
cmp $P/in/a ${B}a
dw query ${B}a
dw in-directory ${B}tree $P/in/tree
dw wait-directory ${B}tree
diff -r in/tree ${B}tree
dw query-directory ${B}tree
dw query ${B}tree/deep/y
mkdir ${B}list
dw in-list ${B}list $P/in/a in/b
dw wait-list ${B}list/a ${B}list/b
dw query-list ${B}list/a ${B}list/b
dw query-directory ${B}list
diff $P/in/b ${B}list/b
for n in 1 2 3 4 5 6; do echo first $n >${B}r$n; done
dw out now ${B}r1 $P/r1
dw wait ${B}r1
cmp ${B}r1 r1
dw out end ${B}r2 $P/r2
dw out end ${B}r2 $P/r2
dw query ${B}r2
dw out now ${B}r2 $P/other || echo busy
dw wait ${B}r2 || echo would wait for itself
dw out end ${B}r3 $P/r3
dw out revoke ${B}r3
dw query ${B}r3 || echo revoked
dw out end ${B}r4 $P/r4
dw out activate ${B}r4
dw wait ${B}r4
cmp ${B}r4 r4
dw out-list end $P ${B}r5 ${B}r6
dw out-list activate $P ${B}r5
dw wait-list ${B}r5
[ -e r5 ] && [ ! -e r6 ]
dw out-directory end ${B}tree $P/tree
echo later >${B}r2
echo more >${B}tree/more
cd $B
dw out now ../../../../in/b $P/b || echo outside
dw out now list/b ../../../../b
dw wait list/b
cd $P
cmp in/b b
dw concurrency $B 1
dw stripes $B
dw mds $B
dw null $B
dw query-directory $B
[ ! -e r2 ] && [ ! -e tree ]
",
    );
    let root = printed.iter().find(|line| line.ends_with("/ss/")).unwrap();
    let expected = [
        "complete 1 pending 0 deferred 0 failed 0",
        "complete 2 pending 0 deferred 0 failed 0",
        "complete 1 pending 0 deferred 0 failed 0",
        "complete 2 pending 0 deferred 0 failed 0",
        "complete 2 pending 0 deferred 0 failed 0",
        "complete 0 pending 0 deferred 1 failed 0",
        "out: Device or resource busy",
        "busy",
        "wait: Invalid argument",
        "would wait for itself",
        "query: Invalid argument",
        "revoked",
        "out: Invalid argument",
        "outside",
        "size 1048576 width 1 start 0 set 0 other 1",
        root,
        // a, list/a, list/b, r1, r4, r5; tree, r2, r6.
        "complete 6 pending 0 deferred 3 failed 0",
    ];
    assert_eq!(printed, expected);
    // The deferred stages copy the files as they are at the end of the job.
    assert_eq!(dir.read("r2"), "later\n");
    assert_eq!(dir.read("r6"), "first 6\n");
    assert_eq!(dir.read("tree/more"), "more\n");
    assert_eq!(dir.read("tree/deep/y"), "y\n");
    assert!(!dir.path().join("r3").exists());
    let status = dir.expect_success("status --pool pool").stdout;
    assert!(!status.contains("instance"), "{status}");
}

#[test]
fn example_stages_checkpoints_while_it_computes() {
    let dir = workplace();
    let examples = library::root().join("examples");
    library::compile(dir.path(), &examples.join("staging.c"), "staging");
    let script = examples.join("staging.sh");
    // Thirty checkpoints at a time would not fit into the instance.
    let run = format!("run --pool pool --pool-size 64MiB {} 30", script.display());
    dir.expect_success(&run);
    for step in 1..=30 {
        let state = dir.read_bytes(&format!("checkpoint-{step}"));
        assert_eq!(state, vec![b'a' + step % 26; 1 << 20]);
    }
    assert!(dir.read("log").ends_with("step 29\nstep 30\n"));
}

#[test]
fn invalid_calls_return_their_errno() {
    let dir = workplace();
    let printed = job(
        &dir,
        "echo x >${B}x
ln -s $P/in/a ${B}out
dw in ${B}n $P/in/none
dw in ${B}none/n $P/in/a
dw in $P/n $P/in/a
dw in ${DW_JOB_PRIVATE}n $P/in/a
dw in ${B}../n $P/in/a
dw in ${B}n $P/in/tree
dw in-directory ${B}n $P/in/a
dw in ${B}n /dev/null
dw out now ${B}none $P/n
dw out now ${B}out $P/n
dw out now $P/in/a $P/n
dw out now ${B}x $P/none/n
dw out now ${B}x $P/in/tree
dw out now ${B}x ${B}y
dw out revoke ${B}x $P/n
dw out activate ${B}x $P/n
dw query ${B}x
dw wait ${B}x
dw stop ${B}x
dw query $P/in/a
dw stripes $P/in/a
dw mds $P
dw in-list ${B} $P/in/a $P/in/none
dw in-list ${B} $P/in/a $P/in/tree/../a
dw concurrency $B 0
echo the destination vanishes
mkdir gone
dw out end ${B}x $P/gone/x
rmdir gone
dw out activate ${B}x
dw wait ${B}x
dw query ${B}x
dw failed $B
dw stop ${B}x
dw query ${B}x
dw failed $B
echo files that change
mkdir ${B}d
for n in 1 2 3; do echo $n >${B}d/f$n; done
mkfifo ${B}d/pipe
mkdir d
dw out-directory now ${B}d $P/d
dw wait-directory ${B}d
dw query-directory ${B}d
dw failed ${B}d
dw stop-directory ${B}d
ls d
echo the instance is full
head -c 200000000 /dev/zero >${B}zeros
dw in ${B}big $P/in/big
dw wait ${B}big
dw stop ${B}big
[ -e ${B}big ] || echo nothing half
rm ${B}zeros
echo stopped
dw in ${B}big $P/in/big
stop=$(dw stop ${B}big)
wait=$(dw wait ${B}big)
# The stop may come after the copy has its name, or after the end of the stage.
case $stop/$wait in
\"/wait: Invalid argument\" | \"stop: Invalid argument/\" | /) echo one answer ;;
*) echo \"$stop/$wait\" ;;
esac
[ ! -e ${B}big ] || cmp ${B}big $P/in/big && echo nothing half
cd /
FOREBAY_JOB_SOCKET= dw stripes $B
FOREBAY_JOB_SOCKET=$P/none dw stripes $B
env -u FOREBAY_JOB_SOCKET dw stripes $B
exit 0
",
    );
    let invalid = "Invalid argument";
    let absent = "No such file or directory";
    let root = printed.iter().find_map(|line| {
        let path = line.strip_prefix("failed ")?;
        path.strip_suffix("x 1 No such file or directory")
    });
    let root = root.unwrap();
    let expected = [
        format!("in: {absent}"),
        format!("in: {absent}"),
        format!("in: {invalid}"),
        format!("in: {invalid}"),
        format!("in: {invalid}"),
        "in: Is a directory".into(),
        "in-directory: Not a directory".into(),
        format!("in: {invalid}"),
        format!("out: {absent}"),
        format!("out: {invalid}"),
        format!("out: {invalid}"),
        format!("out: {absent}"),
        "out: Is a directory".into(),
        format!("out: {invalid}"),
        format!("out: {invalid}"),
        format!("out: {invalid}"),
        format!("query: {invalid}"),
        format!("wait: {invalid}"),
        format!("stop: {invalid}"),
        format!("query: {invalid}"),
        format!("stripes: {invalid}"),
        format!("mds: {invalid}"),
        format!("in-list: {absent}"),
        format!("in-list: {invalid}"),
        format!("concurrency: {invalid}"),
        "the destination vanishes".into(),
        format!("wait: {absent}"),
        "complete 0 pending 0 deferred 0 failed 1".into(),
        "too long for 3".into(),
        format!("failed {root}x 1 {absent}"),
        format!("query: {invalid}"),
        "files that change".into(),
        format!("wait-directory: {invalid}"),
        "complete 3 pending 0 deferred 0 failed 1".into(),
        "too long for 3".into(),
        format!("failed {root}d/pipe 1 {invalid}"),
        "f1".into(),
        "f2".into(),
        "f3".into(),
        "the instance is full".into(),
        "wait: No space left on device".into(),
        "nothing half".into(),
        "stopped".into(),
        "one answer".into(),
        "nothing half".into(),
        "stripes: No such device".into(),
        "stripes: Transport endpoint is not connected".into(),
        "stripes: No such device".into(),
    ];
    assert_eq!(printed, expected);
}

#[test]
fn calls_of_other_users_are_denied() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can become another user: not tried");
        return;
    }
    let dir = workplace();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let printed = job(
        &dir,
        "as() { setpriv --reuid $1 --regid $1 --clear-groups dw concurrency /tmp 1; }
chmod 755 pool
as 65534
chmod 666 pool/calls.socket
as 65534
as 0
exit 0
",
    );
    let denied = "concurrency: Permission denied";
    // Root is allowed; the path is in no instance.
    assert_eq!(printed, [denied, denied, "concurrency: Invalid argument"]);
}

#[test]
fn deferred_stages_are_carried_out_by_recover_after_a_kill() {
    let dir = workplace();
    dir.write(
        "job.sh",
        &format!(
            "{HEAD}echo result >${{B}}r
dw out end ${{B}}r $P/r
dw in-directory ${{B}}tree $P/in/tree
dw wait-directory ${{B}}tree
dw out-directory end ${{B}}tree $P/tree
touch ready
exec sleep 100
"
        ),
    );
    let mut run =
        dir.command("run --pool pool --pool-size 512MiB --job-id kept job.sh").spawn().unwrap();
    let start = Instant::now();
    while !dir.path().join("ready").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "timeout");
        assert!(run.try_wait().unwrap().is_none(), "the run has exited");
        std::thread::sleep(Duration::from_millis(10));
    }
    malformed_calls_are_refused(&dir.path().join("pool/calls.socket"), "kept");
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(!dir.path().join("r").exists());
    let output = dir.expect_success("recover --pool pool");
    assert!(output.stdout.contains("staged out"), "{}", output.stdout);
    assert_eq!(dir.read("r"), "result\n");
    assert_eq!(dir.read("tree/deep/y"), "y\n");
}

/// Malformed calls are refused, and the next call is answered.
fn malformed_calls_are_refused(socket: &Path, job: &str) {
    let huge = [2, 0, 255, 255, 255, 255, 1, 2, 3];
    let short = [2, 0, 100, 0, 0, 0, 1, 2, 3];
    let unknown = [2, 0, 2, 0, 0, 0, 0, 200];
    let other_version = [9; 64];
    for bytes in [&huge[..], &short, &unknown, &other_version, b"x", b""] {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // If bytes were left unread, the connection may be reset after the reply.
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.len() > 6 && !text.contains("panic"), "{bytes:?}: {text}");
    }
    // Paths outside the instance, in various spellings.
    for path in ["/", "/etc/passwd", "relative", "", "/../x", "\0"] {
        // A job that is not running has no instances.
        for (job, expected) in [(job, libc::EINVAL), ("another", libc::ENOTCONN)] {
            let call = StagingCall::Query(PathKind::File, vec![path.into()]);
            let job = job.to_owned();
            let answer = call_service(socket, &JobRequest { job, call }).unwrap();
            assert!(
                matches!(answer, StagingReply::Refused(errno, _) if errno == expected),
                "{answer:?}"
            );
        }
    }
}
