//! Messages about jobs say what is true, and the commands that they recommend work as they are typed.

use crate::embedded_home;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use embedded_home::{Home, text_of};
use rustix::process::{Pid, Signal, kill_process};

/// Starts a run in the pool `other`, whose script has the directives `stages`; returns when the script
/// runs. Its standard error is in the file `log`.
fn start(home: &Home, stages: &str) -> Child {
    let script = format!(
        "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n{stages}\
         echo 1 > $DW_JOB_STRIPED/result\ntouch began\nwhile :; do sleep 0.02; done\n"
    );
    fs::write(home.path("job.sh"), script).unwrap();
    let arguments = ["run", "--pool", "other", "--pool-size", "1GiB", "--job-id", "j", "job.sh"];
    let log = fs::File::create(home.path("log")).unwrap();
    let run = home.command(&arguments).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let start = Instant::now();
    while !home.path("began").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the script does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    run
}

/// Ends a run with a signal; returns its exit status and its standard error.
fn end(home: &Home, mut run: Child, signal: Signal) -> (Option<i32>, String) {
    kill_process(Pid::from_child(&run), signal).unwrap();
    let code = run.wait().unwrap().code();
    (code, fs::read_to_string(home.path("log")).unwrap())
}

/// Runs the command `forebay …` in backquotes that contains `words`.
fn run_advice(home: &Home, text: &str, words: &str) -> String {
    let command = text.split('`').find(|part| part.starts_with("forebay") && part.contains(words));
    let command = command.unwrap_or_else(|| panic!("no command in: {text}"));
    let output = home.forebay(&command.split(' ').skip(1).collect::<Vec<_>>());
    assert!(output.status.success(), "{command}: {}", text_of(&output));
    text_of(&output)
}

#[test]
fn interrupted_job_without_stage_out_only_takes_space() {
    let home = Home::new();
    let (code, text) = end(&home, start(&home, ""), Signal::TERM);
    assert_eq!(code, Some(143), "{text}");
    assert!(text.contains("only takes space") && !text.contains("stages it out"), "{text}");
    let recovered = run_advice(&home, &text, "--job-id j");
    assert!(recovered.contains("job j"), "{recovered}");
}

#[test]
fn commands_that_messages_recommend_name_the_pool() {
    let home = Home::new();
    let stages = "#DW stage_out type=file source=$DW_JOB_STRIPED/result destination=%d/result\n";
    let (code, text) = end(&home, start(&home, stages), Signal::INT);
    assert_eq!(code, Some(130), "{text}");
    let pool = home.path("other");
    let option = format!("--pool {}`", pool.display());
    assert!(text.contains(&option) && text.contains("stages it out"), "{text}");
    let status = text_of(&home.forebay(&["status", "--pool", "other"]));
    assert!(status.contains("job j was interrupted") && status.contains(&option), "{status}");
    run_advice(&home, &status, "recover");
    assert_eq!(fs::read_to_string(home.path("result")).unwrap(), "1\n");
}

#[test]
fn run_on_a_drained_pool_names_the_command_that_ends_that() {
    let home = Home::new();
    let script = "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n";
    assert!(home.script("job.sh", script).status.success());
    assert!(home.forebay(&["drain", "embedded"]).status.success());
    let refused = text_of(&home.script("job.sh", script));
    assert!(refused.contains("are drained") && !refused.contains("is online"), "{refused}");
    run_advice(&home, &refused, "undrain");
    assert!(home.script("job.sh", script).status.success());
    home.assert_clean();
}

#[test]
fn pool_of_another_user_is_named_as_such() {
    let home = Home::new();
    let script = "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n";
    assert!(home.script("job.sh", script).status.success());
    fs::set_permissions(home.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for arguments in [&["status"][..], &["recover"], &["run", "job.sh"]] {
        // Needs root, as whom the pool was made.
        let output = home.command(arguments).uid(65534).gid(65534).output().unwrap();
        let text = text_of(&output);
        assert!(!output.status.success() && text.contains("belongs to user root"), "{text}");
    }
}

#[test]
fn mistyped_stage_out_does_not_keep_a_persistent_instance() {
    let home = Home::new();
    let create = ["create-persistent", "--pool-size", "1GiB", "tables", "--capacity", "64MiB"];
    let created = home.forebay(&create);
    assert!(created.status.success(), "{}", text_of(&created));
    let stage = ["stage", "--instance", "tables", "out", "nothere", "copy"];
    let staged = home.forebay(&stage);
    assert_eq!(staged.status.code(), Some(1), "{}", text_of(&staged));
    let destroyed = home.forebay(&["destroy-persistent", "tables"]);
    assert!(destroyed.status.success(), "{}", text_of(&destroyed));
    home.assert_clean();
}

#[test]
fn interrupted_stage_of_a_persistent_instance_says_that_it_is_cancelled() {
    let home = Home::new();
    let create = ["create-persistent", "--pool-size", "1GiB", "tables", "--capacity", "256MiB"];
    let created = home.forebay(&create);
    assert!(created.status.success(), "{}", text_of(&created));
    fs::create_dir(home.path("many")).unwrap();
    for file in 0..20_000 {
        fs::write(home.path(&format!("many/{file}")), "1").unwrap();
    }
    let stage = ["stage", "--instance", "tables", "--type", "directory", "in", "many", "many"];
    let mut child = home.command(&stage).stderr(Stdio::piped()).spawn().unwrap();
    let mut messages = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("stage") {
        assert!(messages.read_line(&mut text).unwrap() > 0, "it does not stage: {text}");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    messages.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains("the data of `tables` stays in the pool"), "{text}");
    assert!(!text.contains("recover"), "{text}");
    let staged = home.forebay(&stage);
    assert!(staged.status.success(), "{}", text_of(&staged));
    let destroyed = home.forebay(&["destroy-persistent", "tables"]);
    assert!(destroyed.status.success(), "{}", text_of(&destroyed));
    home.assert_clean();
}

#[test]
fn lost_records_of_the_controller_do_not_make_a_new_pool() {
    let home = Home::new();
    let create = ["create-persistent", "--pool-size", "1GiB", "tables", "--capacity", "64MiB"];
    assert!(home.forebay(&create).status.success());
    let records = home.path(".forebay/controller.redb");
    let kept = home.path("kept");
    fs::rename(&records, &kept).unwrap();
    let output = home.forebay(&["create-persistent", "others", "--capacity", "64MiB"]);
    let text = text_of(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("controller.redb`, are missing"), "{text}");
    assert!(!records.exists());
    let dump = home.forebay(&["store", "dump", ".forebay/flash"]);
    assert!(text_of(&dump).contains("\"capacity\": 67108864"), "{}", text_of(&dump));
    fs::rename(&kept, &records).unwrap();
    assert!(home.forebay(&["destroy-persistent", "tables"]).status.success());
    home.assert_clean();
}

#[test]
fn stage_out_of_a_file_onto_a_directory_says_so_before_and_after() {
    let home = Home::new();
    fs::create_dir(home.path("results")).unwrap();
    let script = "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n\
                  #DW stage_out type=file source=$DW_JOB_STRIPED/r destination=%d/results\n\
                  echo 1 > $DW_JOB_STRIPED/r\n";
    let text = text_of(&home.script("job.sh", script));
    let directory = home.path("results");
    let warning = format!("line 3: {} is a directory here", directory.display());
    assert!(text.contains(&warning), "{text}");
    let failure = format!("{}: is a directory, which is not replaced", directory.display());
    assert!(text.contains(&failure), "{text}");
    fs::remove_dir(&directory).unwrap();
    run_advice(&home, &text, "recover");
    assert_eq!(fs::read_to_string(directory).unwrap(), "1\n");
    home.assert_clean();
}
