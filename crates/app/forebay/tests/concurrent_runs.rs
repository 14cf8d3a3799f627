//! Several `forebay run` at a time on one embedded pool, as of the tasks of a job array.

use crate::embedded_home;
use std::fs;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use embedded_home::{Home, text_of};

/// Starts a run of a script that stages out `$DW_JOB_STRIPED/result` to the file `NAME.result`. Its
/// standard error is in the file `NAME.log`.
fn start(home: &Home, name: &str, body: &str) -> Child {
    let destination = home.path(&format!("{name}.result"));
    let script = format!(
        "#!/bin/sh\n#DW jobdw type=scratch access_mode=striped capacity=64MiB\n\
         #DW stage_out type=file source=$DW_JOB_STRIPED/result destination={}\n{body}",
        destination.display()
    );
    fs::write(home.path(name), script).unwrap();
    let mut command = home.command(&["run", "--pool-size", "1GiB", "--job-id", name, name]);
    let log = fs::File::create(home.path(&format!("{name}.log"))).unwrap();
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

fn log(home: &Home, name: &str) -> String {
    fs::read_to_string(home.path(&format!("{name}.log"))).unwrap()
}

fn result(home: &Home, name: &str) -> String {
    fs::read_to_string(home.path(&format!("{name}.result"))).unwrap()
}

/// Waits until a run is over, and asserts its success.
fn succeed(home: &Home, name: &str, mut run: Child) {
    assert!(wait(&mut run).success(), "{name}: {}", log(home, name));
}

fn wait(run: &mut Child) -> ExitStatus {
    until("the end of a run", || run.try_wait().unwrap())
}

fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "timeout: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_file(home: &Home, name: &str) {
    until(name, || home.path(name).exists().then_some(()));
}

/// A line of a script that waits for a file in the working directory.
fn wait_line(name: &str) -> String {
    format!("while [ ! -e {name} ]; do sleep 0.02; done\n")
}

#[test]
fn runs_that_start_together_on_a_new_pool_share_it() {
    let home = Home::new();
    const RUNS: usize = 6;
    let names: Vec<String> = (0..RUNS).map(|run| format!("task{run}")).collect();
    let run = |name: &String| {
        // Each script waits for all others, so that no run can wait for the end of another one.
        let others: String =
            names.iter().map(|other| wait_line(&format!("{other}.began"))).collect();
        let body = format!(
            "echo {name} > $DW_JOB_STRIPED/result\ntouch {name}.began\n{others}ls $DW_JOB_STRIPED\n"
        );
        start(&home, name, &body)
    };
    let runs: Vec<Child> = names.iter().map(run).collect();
    for (name, run) in names.iter().zip(runs) {
        succeed(&home, name, run);
        assert_eq!(result(&home, name), format!("{name}\n"));
    }
    home.assert_clean();
}

#[test]
fn process_that_serves_the_pool_ends_after_the_runs_that_have_joined() {
    let home = Home::new();
    let first = "echo 1 > $DW_JOB_STRIPED/result\ntouch first.began\n".to_owned();
    let mut first = start(&home, "first", &(first + &wait_line("second.began") + "exit 3\n"));
    wait_for_file(&home, "first.began");
    let second = "touch second.began\n".to_owned() + &wait_line("go");
    let second = start(&home, "second", &(second + "echo 2 > $DW_JOB_STRIPED/result\n"));
    // Its own job is over, with results.
    wait_for_file(&home, "first.result");
    until("note", || log(&home, "first").contains("others use the pool").then_some(()));
    // A run that comes later waits until the pool is closed, and then serves it.
    let third = start(&home, "third", "echo 3 > $DW_JOB_STRIPED/result\n");
    until("note", || log(&home, "third").contains("waiting, interrupt").then_some(()));
    let holder = format!("process {} uses it", first.id());
    assert!(log(&home, "third").contains(&holder), "{}", log(&home, "third"));
    assert!(first.try_wait().unwrap().is_none());
    fs::write(home.path("go"), "").unwrap();
    succeed(&home, "second", second);
    assert_eq!(wait(&mut first).code(), Some(3));
    succeed(&home, "third", third);
    for (name, expected) in [("first", "1\n"), ("second", "2\n"), ("third", "3\n")] {
        assert_eq!(result(&home, name), expected);
    }
    home.assert_clean();
}

#[test]
fn run_that_has_joined_serves_the_pool_when_the_process_that_did_is_killed() {
    let home = Home::new();
    let body = "echo $1 > $DW_JOB_STRIPED/result\nsync $DW_JOB_STRIPED/result\n";
    let waits =
        |name: &str| format!("{}touch {name}.began\n{}", body.replace("$1", name), wait_line("go"));
    let mut first = start(&home, "first", &waits("first"));
    wait_for_file(&home, "first.began");
    let others = ["second", "third"].map(|name| (name, start(&home, name, &waits(name))));
    for (name, _) in &others {
        wait_for_file(&home, &format!("{name}.began"));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    fs::write(home.path("go"), "").unwrap();
    for (name, run) in others {
        succeed(&home, name, run);
        assert_eq!(result(&home, name), format!("{name}\n"));
    }
    // The killed run's job is kept.
    let recovered = home.forebay(&["recover"]);
    assert!(text_of(&recovered).contains("staged out"), "{}", text_of(&recovered));
    assert_eq!(result(&home, "first"), "first\n");
    home.assert_clean();
}

#[test]
fn waiting_run_can_be_interrupted() {
    let home = Home::new();
    let first = start(&home, "first", "echo 1 > $DW_JOB_STRIPED/result\n");
    succeed(&home, "first", first);
    // As a process that does not share the pool.
    let lock = fs::File::open(home.path(".forebay/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut second = start(&home, "second", "true\n");
    until("note", || log(&home, "second").contains("waiting, interrupt").then_some(()));
    let process = rustix::process::Pid::from_child(&second);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert_eq!(wait(&mut second).code(), Some(130));
    assert!(log(&home, "second").contains("left nothing behind"), "{}", log(&home, "second"));
    drop(lock);
    home.assert_clean();
}

#[test]
fn job_of_a_killed_run_is_kept_while_others_go_on() {
    let home = Home::new();
    let body = |name: &str| {
        format!("echo {name} > $DW_JOB_STRIPED/result\nsync\ntouch {name}.began\n")
            + &wait_line("go")
    };
    let first = start(&home, "first", &body("first"));
    wait_for_file(&home, "first.began");
    let mut second = start(&home, "second", &body("second"));
    wait_for_file(&home, "second.began");
    second.kill().unwrap();
    second.wait().unwrap();
    // The id belongs to a job that is mounted.
    let again = home.forebay(&["run", "--job-id", "second", "second"]);
    assert!(text_of(&again).contains("job `second` is mounted on"), "{}", text_of(&again));
    fs::write(home.path("go"), "").unwrap();
    succeed(&home, "first", first);
    assert!(!home.path("second.result").exists());
    let recovered = home.forebay(&["recover"]);
    assert!(recovered.status.success(), "{}", text_of(&recovered));
    assert_eq!(result(&home, "second"), "second\n");
    home.assert_clean();
}

#[test]
fn run_whose_server_was_killed_goes_on_with_the_next_one() {
    let home = Home::new();
    let body = |name: &str| {
        format!("echo {name} > $DW_JOB_STRIPED/result\nsync\ntouch {name}.began\n")
            + &wait_line(&format!("{name}.go"))
    };
    let mut first = start(&home, "first", &body("first"));
    wait_for_file(&home, "first.began");
    let second = start(&home, "second", &body("second"));
    wait_for_file(&home, "second.began");
    first.kill().unwrap();
    first.wait().unwrap();
    fs::write(home.path("second.go"), "").unwrap();
    let third = start(&home, "third", "echo third > $DW_JOB_STRIPED/result\n");
    succeed(&home, "second", second);
    succeed(&home, "third", third);
    assert_eq!(result(&home, "second"), "second\n");
    let recovered = home.forebay(&["recover"]);
    assert!(text_of(&recovered).contains("staged out"), "{}", text_of(&recovered));
    assert_eq!(result(&home, "first"), "first\n");
    home.assert_clean();
}

#[test]
fn job_that_runs_is_neither_recovered_nor_run_again() {
    let home = Home::new();
    let body = "echo 1 > $DW_JOB_STRIPED/result\ntouch first.began\n".to_owned() + &wait_line("go");
    // One that serves the pool, and one that has joined it.
    let first = start(&home, "first", &body);
    wait_for_file(&home, "first.began");
    let body = body.replace("first", "second") + "cat $DW_JOB_STRIPED/result > second.read\n";
    let second = start(&home, "second", &body);
    wait_for_file(&home, "second.began");
    for (name, run) in [("first", &first), ("second", &second)] {
        for more in [None, Some("--discard")] {
            let mut arguments = vec!["recover", "--job-id", name];
            arguments.extend(more);
            let refused = home.forebay(&arguments);
            assert_eq!(refused.status.code(), Some(1), "{}", text_of(&refused));
            let reason = format!("process {} runs or recovers job `{name}`", run.id());
            assert!(text_of(&refused).contains(&reason), "{}", text_of(&refused));
        }
        let again = text_of(&home.forebay(&["run", "--job-id", name, name]));
        let reason = format!("process {} runs or recovers job `{name}`", run.id());
        assert!(again.contains(&reason) && !again.contains("forebay recover"), "{again}");
    }
    fs::write(home.path("go"), "").unwrap();
    succeed(&home, "second", second);
    succeed(&home, "first", first);
    assert_eq!(fs::read_to_string(home.path("second.read")).unwrap(), "1\n");
    assert_eq!(result(&home, "first"), "1\n");
    assert_eq!(fs::read_dir(home.path(".forebay/runs")).unwrap().count(), 0);
    home.assert_clean();
}

#[test]
fn job_that_runs_is_ended_by_force() {
    let home = Home::new();
    let body = "echo 1 > $DW_JOB_STRIPED/result\ntouch first.began\n".to_owned() + &wait_line("go");
    let mut first = start(&home, "first", &body);
    wait_for_file(&home, "first.began");
    let recovered = home.forebay(&["recover", "--job-id", "first", "--force"]);
    assert!(
        text_of(&recovered).contains("job first: staged out 1 file"),
        "{}",
        text_of(&recovered)
    );
    assert_eq!(result(&home, "first"), "1\n");
    fs::write(home.path("go"), "").unwrap();
    wait(&mut first);
    home.assert_clean();
}
