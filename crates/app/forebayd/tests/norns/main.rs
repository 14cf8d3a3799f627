//! The data transfer service, used by a C program with the libraries, as an ordinary user.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod nodes;
mod site;

use forebay_norns_api::Code;
use forebay_norns_api::client::send;
use forebay_norns_api::message::{
    Call, ControlCall, DataPath, JobRequest, Operation, Reply, Resource, TaskRequest,
};
use site::{OTHER, Site, USER, built, failed};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn tree_is_copied_with_the_permissions_of_the_user() {
    let site = Site::new().with_job("100");
    site.control(&["update-job", "42", "dst", "100"]);
    site.write("open/tree/a", "first\n");
    site.write("open/tree/deep/b", vec![7; 200_000]);
    symlink("a", site.path("open/tree/link")).unwrap();
    let printed = site.user(&["copy", "shared:open:/tree", "local:dst:new/copy"]);
    assert_eq!(printed, "status -103 result 0 errno 0 pending 0 total 200006");
    assert_eq!(fs::read(site.path("dst/new/copy/a")).unwrap(), b"first\n");
    assert_eq!(fs::read(site.path("dst/new/copy/deep/b")).unwrap(), vec![7; 200_000]);
    assert_eq!(fs::read_link(site.path("dst/new/copy/link")).unwrap().to_str(), Some("a"));
    for created in ["dst/new", "dst/new/copy", "dst/new/copy/deep/b"] {
        assert_eq!(fs::metadata(site.path(created)).unwrap().uid(), USER, "{created}");
    }
    let printed = site.user(&["copy", "local:dst:new/copy/a", "local:open:/a2"]);
    assert_eq!(printed, "status -103 result 0 errno 0 pending 0 total 6");
    assert_eq!(fs::read(site.path("open/a2")).unwrap(), b"first\n");
}

#[test]
fn file_that_the_user_may_not_read_or_write_is_neither_copied_nor_removed() {
    let site = Site::new().with_job("100");
    site.write("open/secret", "of root");
    fs::set_permissions(site.path("open/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    chown(site.path("open/secret"), Some(0), Some(0)).unwrap();
    let copy = site.user_fails(&["copy", "local:open:secret", "local:dst:secret"]);
    assert!(failed(&copy, libc::EACCES), "{copy}");
    assert!(site.names("dst").is_empty());
    site.write("open/mine", "x");
    fs::create_dir(site.path("open/closed")).unwrap();
    site.write("open/kept/file", "x");
    chown(site.path("open/kept"), Some(0), Some(0)).unwrap();
    let copy = site.user_fails(&["copy", "local:open:mine", "local:open:closed/mine"]);
    assert!(failed(&copy, libc::EACCES), "{copy}");
    let removed = site.user_fails(&["remove", "local:open:kept/file"]);
    assert!(failed(&removed, libc::EACCES), "{removed}");
    assert!(site.path("open/kept/file").exists());
    fs::write(site.path("outside"), "x").unwrap();
    symlink("../outside", site.path("open/out")).unwrap();
    for path in ["local:open:out", "local:open:../outside", "local:open:none"] {
        let copy = site.run(0, &["copy", path, "local:dst:out"]).1;
        assert!(failed(&copy, libc::ENOENT), "root, {path}: {copy}");
        let copy = site.user_fails(&["copy", path, "local:dst:out"]);
        assert!(failed(&copy, libc::ENOENT), "{path}: {copy}");
    }
}

#[test]
fn move_of_a_file_onto_itself_keeps_it() {
    let site = Site::new().with_job("100");
    site.write("open/dir/file", "kept");
    symlink("dir", site.path("open/alias")).unwrap();
    for to in ["local:open:dir/file", "local:open:alias/file"] {
        let moved = site.user_fails(&["move", "local:open:dir/file", to]);
        assert!(failed(&moved, libc::EBUSY), "{moved}");
        assert_eq!(fs::read_to_string(site.path("open/dir/file")).unwrap(), "kept");
    }
}

#[test]
fn directory_is_not_copied_or_moved_into_itself() {
    let site = Site::new().with_job("100");
    site.write("open/tree/file", "kept");
    symlink("tree", site.path("open/alias")).unwrap();
    for operation in ["copy", "move"] {
        for to in ["local:open:tree/sub", "local:open:alias/new/sub", "local:open:tree"] {
            let refused = site.user_fails(&[operation, "local:open:tree", to]);
            assert!(failed(&refused, libc::EINVAL), "{operation} to {to}: {refused}");
        }
    }
    assert_eq!(site.names("open/tree"), ["file"]);
}

#[test]
fn copy_into_a_shared_directory_gives_nothing_to_the_user_who_prepared_it() {
    let site = Site::new().with_job("100");
    site.write("open/program", "x");
    chown(site.path("open/program"), Some(OTHER), Some(OTHER)).unwrap();
    fs::set_permissions(site.path("open/program"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::create_dir(site.path("open/shared")).unwrap();
    fs::set_permissions(site.path("open/shared"), fs::Permissions::from_mode(0o777)).unwrap();
    let to = ["copy", "local:open:program", "local:open:shared/copy"];
    site.user(&to);
    let copied = fs::metadata(site.path("open/shared/copy")).unwrap();
    assert_eq!((copied.uid(), copied.mode() & 0o7777), (USER, 0o755), "no setuid of another user");

    // The hidden name of a copy, taken by another user who keeps the file open.
    let hidden = site.path("open/shared").join(hidden_name("secret"));
    fs::write(&hidden, "").unwrap();
    chown(&hidden, Some(OTHER), Some(OTHER)).unwrap();
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o666)).unwrap();
    let kept_open = fs::File::open(&hidden).unwrap();
    site.write("open/secret", "for one user");
    fs::set_permissions(site.path("open/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    site.user(&["copy", "local:open:secret", "local:open:shared/secret"]);
    assert_eq!(fs::read_to_string(site.path("open/shared/secret")).unwrap(), "for one user");
    assert_eq!(kept_open.metadata().unwrap().len(), 0, "the other user has read the copy");
    assert!(!hidden.exists());
}

/// The hidden name of an incomplete copy.
fn hidden_name(name: &str) -> String {
    let digest = blake3::hash(name.as_bytes());
    format!(".forebay-stage-{}", &digest.to_hex()[..32])
}

#[test]
fn dataspace_is_for_the_processes_of_its_jobs() {
    let site = Site::new();
    site.write("open/a", "x");
    let to_dst = ["copy", "local:open:a", "local:dst:a"];
    assert!(site.user_fails(&to_dst).starts_with("submit -21 "), "no job");
    let site = site.with_job("100");
    site.user(&to_dst);
    let refused = site.user_fails(&["copy", "local:open:a", "local:src:a"]);
    assert!(refused.starts_with("submit -31 "), "not a dataspace of the job: {refused}");
    let refused = site.run(OTHER, &to_dst).1;
    assert!(refused.starts_with("submit -21 "), "a process of another user: {refused}");
    let refused = site.user_fails(&["copy", "local:none:a", "local:dst:a"]);
    assert!(refused.starts_with("submit -31 "), "{refused}");
    let started = site.user(&["copy", "start", "local:open:a", "local:dst:b"]);
    let task = started.strip_prefix("task ").unwrap();
    assert_eq!(site.run(OTHER, &["await", task]).1, "wait -41");
    assert_eq!(site.run(OTHER, &["cancel-task", task]).1, "cancel -41");
    site.user(&["await", task]);
    site.control(&["no-process", "42", &USER.to_string(), &std::process::id().to_string()]);
    assert!(site.user_fails(&to_dst).starts_with("submit -21 "), "it left the job");
    assert!(site.run(USER, &["command", "1003"]).1.starts_with("command -6 "), "not for users");
}

#[test]
fn quota_of_the_job_and_capacity_of_the_dataspace_limit_what_is_stored() {
    let site = Site::new().with_job("3");
    site.write("open/two", vec![1; 2 << 20]);
    let copy = |to: &str| site.run(USER, &["copy", "local:open:two", to]);
    assert!(copy("local:dst:a").0);
    let refused = copy("local:dst:b").1;
    assert!(failed(&refused, libc::EDQUOT), "{refused}");
    assert!(!site.path("dst/b").exists());
    assert!(copy("local:dst:a").0, "a file that is replaced does not count twice");
    site.user(&["remove", "local:dst:a"]);
    assert!(copy("local:dst:b").0, "what is removed does not count");
    let small = site.path("small");
    fs::create_dir(&small).unwrap();
    site.control(&["space", "small", small.to_str().unwrap(), "1"]);
    let refused = site.run(0, &["copy", "local:open:two", "local:small:a"]).1;
    assert!(failed(&refused, libc::EDQUOT), "{refused}");
}

#[test]
fn running_copy_is_cancelled_and_leaves_no_incomplete_file() {
    let site = Site::new().with_job("1000");
    site.write("open/big", vec![3; 400 << 20]);
    let printed = site.user_fails(&["copy", "cancel", "local:open:big", "local:dst:big"]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[..2], ["wait -5", "cancel 0"], "{printed}");
    assert!(failed(lines[2], libc::ECANCELED), "{printed}");
    assert!(site.names("dst").is_empty(), "{:?}", site.names("dst"));
    assert!(site.path("open/big").exists());
}

#[test]
fn memory_region_is_stored_with_the_permissions_of_a_new_file() {
    let site = Site::new().with_job("100");
    site.user(&["copy", "memory:contents of memory", "local:dst:deep/region"]);
    assert_eq!(fs::read(site.path("dst/deep/region")).unwrap(), b"contents of memory");
    let stat = fs::metadata(site.path("dst/deep/region")).unwrap();
    assert_eq!((stat.uid(), stat.mode() & 0o7133), (USER, 0));
    site.user(&["move", "memory:", "local:dst:empty"]);
    assert_eq!(fs::metadata(site.path("dst/empty")).unwrap().len(), 0);
    let unreadable = site.user_fails(&["copy", "memory:unreadable", "local:dst:none"]);
    assert!(failed(&unreadable, libc::EFAULT), "{unreadable}");
    assert!(!site.path("dst/none").exists());
    let refused = site.user_fails(&["copy", "memory:x", "local:dst:directory/"]);
    assert!(refused.starts_with("submit -2 "), "{refused}");
    let refused = site.user_fails(&["copy", "local:dst:empty", "memory:x"]);
    assert!(refused.starts_with("submit -200 "), "{refused}");
    let refused = site.user_fails(&["remove", "memory:x"]);
    assert!(refused.starts_with("submit -200 "), "{refused}");
}

#[test]
fn moved_tree_and_removed_tree_are_gone() {
    let site = Site::new().with_job("100");
    site.write("open/tree/a", "a");
    site.write("open/tree/deep/b", "b");
    site.user(&["move", "local:open:tree", "local:dst:tree"]);
    assert!(!site.path("open/tree").exists());
    assert_eq!(fs::read(site.path("dst/tree/deep/b")).unwrap(), b"b");
    site.user(&["remove", "local:dst:tree"]);
    assert!(site.names("dst").is_empty());
    let again = site.user_fails(&["remove", "local:dst:tree"]);
    assert!(failed(&again, libc::ENOENT), "{again}");
}

#[test]
fn paused_service_refuses_tasks_and_ends_when_none_is_left() {
    let mut site = Site::new().with_job("1000");
    site.write("open/big", vec![3; 100 << 20]);
    let copy = ["copy", "start", "local:open:big", "local:dst:big"];
    let copies = ["local:dst:1", "local:dst:2", "local:dst:3", "local:dst:4", "local:dst:5"];
    site.control(&["command", "1001"]);
    assert!(site.user_fails(&copy).starts_with("submit -9 "), "paused");
    site.control(&["command", "1002"]);
    let started: Vec<String> =
        copies.iter().map(|to| site.user(&["copy", "start", "local:open:big", to])).collect();
    assert!(site.run(0, &["command", "1003"]).1.starts_with("command -43 "), "tasks are pending");
    let refused = site.run(0, &["no-space", "dst"]).1;
    assert!(refused.starts_with("no-space -43 "), "{refused}");
    for started in started {
        site.user(&["await", &number_of(&started)]);
    }
    site.control(&["no-space", "dst"]);
    assert!(site.path("dst/5").exists(), "files stay");
    site.control(&["command", "1003"]);
    assert!(site.await_end(), "it ends with success");
    assert!(!site.path("urd.pid").exists());
    assert!(site.run(0, &["command", "1000"]).1.starts_with("command -6 "), "it has ended");
}

#[test]
fn time_of_a_running_copy_is_estimated_from_earlier_ones() {
    let site = Site::new().with_job("1000");
    site.write("open/big", vec![3; 100 << 20]);
    site.user(&["copy", "local:open:big", "local:dst:big"]);
    let began = Instant::now();
    let eta = loop {
        assert!(began.elapsed() < Duration::from_secs(30), "no copy is seen");
        let status = site.control(&["status"]);
        let words: Vec<&str> = status.split_whitespace().collect();
        if words[..2] == ["running", "0"] {
            site.user(&["copy", "start", "local:open:big", "local:dst:big"]);
        } else if words[5] != "nan" {
            break words[5].parse::<f64>().unwrap();
        }
    };
    assert!((0.0..20.0).contains(&eta), "{eta}");
}

#[test]
fn dry_run_finishes_tasks_without_effect() {
    let mut site = Site::new().with_job("1000");
    site.kill();
    let text = fs::read_to_string(site.path("urd.conf")).unwrap();
    let dry = text.replace("workers: 2", "workers: 2, dry_run: true");
    fs::write(site.path("urd.conf"), dry).unwrap();
    site.start();
    site.write("open/a", "x");
    site.user(&["move", "local:open:a", "local:dst:a"]);
    assert!(site.path("open/a").exists() && site.names("dst").is_empty());
}

#[test]
fn job_and_dataspace_are_registered_once_and_survive_a_restart() {
    let mut site = Site::new().with_job("100");
    let code = |site: &Site, arguments: &[&str]| {
        let printed = site.run(0, arguments).1;
        printed.split(' ').nth(1).unwrap().parse::<i32>().unwrap()
    };
    let src = site.path("src").to_str().unwrap().to_owned();
    assert_eq!(code(&site, &["space", "src", &src, "10"]), -30);
    assert_eq!(code(&site, &["space", "none", "/does/not/exist", "10"]), -2);
    assert_eq!(code(&site, &["no-space", "none"]), -31);
    assert_eq!(code(&site, &["job", "42", "dst", "1"]), -10);
    assert_eq!(code(&site, &["update-job", "43", "dst", "1"]), -11);
    assert_eq!(code(&site, &["no-job", "43"]), -11);
    assert_eq!(code(&site, &["process", "43", "1", "1"]), -11);
    assert_eq!(code(&site, &["no-process", "42", "1", "1"]), -21);
    site.kill();
    site.start();
    assert_eq!(code(&site, &["space", "src", &src, "10"]), -30);
    site.write("open/a", "x");
    site.user(&["copy", "local:open:a", "local:dst:a"]);
    assert_eq!(site.control(&["status"]), "running 0 pending 0 eta nan\nstatus 0 Success");
    site.control(&["no-job", "42"]);
    assert!(site.user_fails(&["remove", "local:dst:a"]).starts_with("submit -21 "));
}

/// Waits until the hidden file of a copy in `directory` has data, or the copy is complete.
fn await_copying(site: &Site, directory: &str) {
    let started = Instant::now();
    let has_data = || {
        let mut entries = fs::read_dir(site.path(directory)).into_iter().flatten();
        entries.any(|entry| entry.unwrap().metadata().is_ok_and(|stat| stat.blocks() > 0))
    };
    while !has_data() {
        assert!(started.elapsed() < Duration::from_secs(30), "the copy does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Repeats `attempt` until it interrupts a copy: on a machine with other load, a copy may be complete
/// before this process can kill its service. `attempt` returns the task if it was interrupted.
fn interrupt(mut attempt: impl FnMut() -> Option<String>) -> String {
    let interrupted = (0..20).find_map(|_| attempt());
    interrupted.expect("every copy was complete before its service was killed")
}

fn number_of(started: &str) -> String {
    started.strip_prefix("task ").unwrap().to_owned()
}

#[test]
fn copy_continues_after_the_service_was_killed() {
    let mut site = Site::new().with_job("1000");
    let contents: Vec<u8> =
        (0..200).map(|part| vec![part as u8; 1 << 20]).collect::<Vec<_>>().concat();
    site.write("open/big", &contents);
    let task = interrupt(|| {
        let started = site.user(&["copy", "start", "local:open:big", "local:dst:big"]);
        await_copying(&site, "dst");
        site.kill();
        let is_complete = site.path("dst/big").exists();
        site.start();
        if is_complete {
            site.user(&["await", &number_of(&started)]);
            fs::remove_file(site.path("dst/big")).unwrap();
        }
        (!is_complete).then(|| number_of(&started))
    });
    let printed = site.user(&["await", &task]);
    assert!(printed.starts_with("status -103 result 0 errno 0 pending 0 total 209715200"));
    assert!(fs::read(site.path("dst/big")).unwrap() == contents);
    assert_eq!(site.names("dst"), ["big"], "no incomplete file is left");
    assert_eq!(fs::metadata(site.path("dst/big")).unwrap().uid(), USER);
    site.kill();
    site.start();
    assert_eq!(site.user(&["await", &task]), printed, "the result survives");
    let journals = site.names("state/tasks").into_iter().filter(|name| name.ends_with(".copies"));
    assert_eq!(journals.count(), 0, "journals of tasks that are over are removed");
}

#[test]
fn move_keeps_its_source_until_the_copy_is_complete_whenever_the_service_is_killed() {
    let mut site = Site::new().with_job("1000");
    let contents = vec![5; 200 << 20];
    let task = interrupt(|| {
        site.write("open/tree/big", &contents);
        site.write("open/tree/small", "s");
        let started = site.user(&["move", "start", "local:open:tree", "local:dst:tree"]);
        await_copying(&site, "dst/tree");
        site.kill();
        let is_complete = site.path("dst/tree/big").exists();
        if !is_complete {
            assert_eq!(site.names("open/tree"), ["big", "small"], "nothing is removed");
        }
        site.start();
        if is_complete {
            site.user(&["await", &number_of(&started)]);
            site.user(&["remove", "local:dst:tree"]);
        }
        (!is_complete).then(|| number_of(&started))
    });
    assert!(site.user(&["await", &task]).starts_with("status -103 "));
    assert!(fs::read(site.path("dst/tree/big")).unwrap() == contents);
    assert_eq!(site.names("dst/tree"), ["big", "small"]);
    assert!(!site.path("open/tree").exists());
    // Killed after the copy, before or during the removal.
    site.kill();
    let record = site.path(&format!("state/tasks/{task}.json"));
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    assert_eq!(state["outcome"]["errno"], 0);
    (state["outcome"], state["copied"]) = (serde_json::Value::Null, true.into());
    fs::write(&record, state.to_string()).unwrap();
    let time = fs::metadata(site.path("dst/tree/small")).unwrap().modified().unwrap();
    site.write("open/tree/small", "s");
    let left = fs::File::options().append(true).open(site.path("open/tree/small")).unwrap();
    left.set_modified(time).unwrap();
    site.start();
    assert!(site.user(&["await", &task]).starts_with("status -103 "));
    assert!(!site.path("open/tree").exists(), "the rest of the source is removed");
    assert_eq!(fs::read(site.path("dst/tree/small")).unwrap(), b"s");
}

#[test]
fn region_whose_service_was_killed_fails_cleanly() {
    let mut site = Site::new().with_job("1000");
    site.user(&["copy", "start", "memory:x", "local:dst:a"]);
    let task = site.user(&["copy", "start", "memory:x", "local:dst:b"]);
    let task = task.strip_prefix("task ").unwrap();
    site.user(&["await", task]);
    site.kill();
    fs::remove_file(site.path("dst/b")).unwrap();
    let record = site.path(&format!("state/tasks/{task}.json"));
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    state["outcome"] = serde_json::Value::Null;
    fs::write(&record, state.to_string()).unwrap();
    site.start();
    let printed = site.user_fails(&["await", task]);
    assert!(failed(&printed, libc::EINTR), "{printed}");
    assert!(!site.path("dst/b").exists());
}

#[test]
fn instance_of_a_job_is_a_dataspace() {
    let site = Site::new();
    site.write("open/in/a", vec![7; 3_000_000]);
    let at = site.dir.path().display();
    let script = format!(
        "#!/bin/sh
#DW jobdw capacity=64MiB type=scratch access_mode=striped
set -e
cd {at}
export NORNS_CONFIG_FILE=urd.conf
{nornsctl} dataspace add bb $DW_JOB_STRIPED --capacity 16MiB
./program copy shared:open:in local:bb:deep/in
cmp open/in/a $DW_JOB_STRIPED/deep/in/a
./program move local:bb:deep local:src:out
[ ! -e $DW_JOB_STRIPED/deep ]
{nornsctl} dataspace remove bb
",
        nornsctl = built("forebay-nornsctl", "nornsctl").display(),
    );
    fs::write(site.path("job.sh"), script).unwrap();
    let mut job = Command::new(built("forebay", "forebay"));
    job.args(["run", "--pool", "pool", "--pool-size", "256MiB", "job.sh"]);
    let output = job.current_dir(site.dir.path()).env_remove("LD_LIBRARY_PATH").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read(site.path("src/out/in/a")).unwrap(), vec![7; 3_000_000]);
}

#[test]
fn nornsctl_administers_and_lists() {
    let site = Site::new();
    let add = format!("dataspace add nvm {} --capacity 1MiB", site.path("src").display());
    assert_eq!(site.nornsctl(&add), (true, String::new()));
    assert!(site.nornsctl(&add).1.contains("the dataspace `nvm` exists"));
    let pid = std::process::id();
    for command in [
        "job add 7 --host n0 --limit nvm=512KiB --limit open=10MiB".to_owned(),
        format!("process add 7 {pid} --uid {USER} --gid {USER}"),
        "ping".to_owned(),
    ] {
        assert_eq!(site.nornsctl(&command), (true, String::new()), "{command}");
    }
    site.write("open/a", vec![1; 400 << 10]);
    site.user(&["copy", "local:open:a", "local:nvm:a"]);
    site.user_fails(&["copy", "local:open:a", "local:nvm:b"]);
    let lines = |command: &str| -> Vec<String> {
        let (success, text) = site.nornsctl(command);
        assert!(success, "{text}");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    };
    let src = site.path("src").display().to_string();
    let row = format!("nvm 400 KiB 1.00 MiB jobs {src}");
    assert!(lines("dataspaces").contains(&row), "{:?}", lines("dataspaces"));
    assert_eq!(
        lines("jobs")[1..],
        ["7 n0 1 nvm 400 KiB of 512 KiB, open 0 B of 10.0 MiB".to_owned()]
    );
    let expected = [
        format!("1 {USER} 7 finished 400 KiB of 400 KiB copy open:a to nvm:a"),
        format!("2 {USER} 7 failed: Disk quota exceeded 0 B of 400 KiB copy open:a to nvm:b"),
    ];
    assert_eq!(lines("tasks")[1..], expected);
    assert_eq!(lines("status"), ["0 in progress (no estimate), 0 pending"]);
    assert!(!site.nornsctl("cancel 99").0);
    assert!(
        site.nornsctl("process remove 7 1 --uid 1 --gid 1").1.contains("job 7 has no process 1")
    );
    for command in ["job remove 7", "dataspace remove nvm", "pause", "resume", "shutdown"] {
        assert_eq!(site.nornsctl(command), (true, String::new()), "{command}");
    }
}

#[test]
fn wrong_arguments_and_a_missing_service_have_their_codes() {
    let mut site = Site::new().with_job("100");
    site.control(&["misuse"]);
    site.kill();
    assert!(site.user_fails(&["copy", "local:open:a", "local:dst:a"]).starts_with("submit -6 "));
    assert!(site.run(0, &["status"]).1.contains("status -6 "));
}

#[test]
fn calls_have_a_longest_length_which_a_job_of_10000_hosts_does_not_reach() {
    let site = Site::new();
    let submit = |path_bytes: usize| {
        let path = DataPath { nsid: "open".to_owned(), path: vec![b'a'; path_bytes] };
        let source = Resource::Path(path);
        let task = TaskRequest { operation: Operation::Remove, source, destination: None };
        match send(&site.path("global.socket"), &Call::Submit(task), None) {
            Ok(Reply::Refused(code, reason)) => (code, reason),
            other => panic!("{other:?}"),
        }
    };
    // Read, and refused for the length of its path.
    assert_eq!(submit(32 << 10).0, Code::BADARGS);
    assert_eq!(submit(64 << 10), (Code::BADREQUEST, "frame too long".to_owned()));
    let hosts = (0..10_000).map(|n| format!("node{n:05}.cluster.example.org")).collect();
    let job = JobRequest { hosts, limits: Vec::new() };
    let call = Call::Control(ControlCall::RegisterJob(7, job));
    assert_eq!(send(&site.path("control.socket"), &call, None), Ok(Reply::Done));
}
