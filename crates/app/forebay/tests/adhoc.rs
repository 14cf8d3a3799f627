//! `forebay adhoc`: a buffer of an ordinary user on the hosts of an allocation, which are network
//! namespaces here.
//!
//! Needs root: it makes network namespaces and acts as several users.

use crate::cluster;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use cluster::site::{ROOT, expect_failure, expect_success};
use cluster::{Cluster, Daemon, User, interception_library, program, text_of, wait_until};

/// Users of Debian: `fusermount3` serves only users that have a name.
const USER: User = (65_534, 65_534);
const OTHER: User = (1, 1);

/// Hosts on which `USER` has a local directory and FUSE, and can start processes on the others.
struct Allocation {
    cluster: Cluster,
    /// Starts a command on a host, as ssh does: `LAUNCHER HOST COMMAND…`.
    launcher: String,
    /// The local directory of each host, and the one all hosts share.
    local: PathBuf,
    shared: PathBuf,
}

impl Allocation {
    fn new(hosts: usize) -> Allocation {
        let cluster = Cluster::new(hosts);
        let (local, shared) = (cluster.hosts[0].local.join("s"), cluster.pfs());
        for host in &cluster.hosts {
            // Other systems give all users access to the device.
            let device = format!(
                "mkdir {0}; chmod 1777 {0}; mknod {0}.fuse c 10 229; chmod 666 {0}.fuse; \
                 mount --bind {0}.fuse /dev/fuse",
                local.display()
            );
            expect_success(&host.shell(ROOT, &device));
        }
        let launcher = install_launcher(&cluster);
        Allocation { cluster, launcher, local, shared }
    }

    /// The list of all hosts, as Slurm writes it.
    fn hosts(&self) -> String {
        format!("n[1-{}]", self.cluster.hosts.len())
    }

    /// `forebay adhoc` of `USER` on the first host, over all hosts.
    fn adhoc(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.leader(&["--hosts", &self.hosts()]);
        command.args(options).args(["--", "sh", "-ec", script]);
        command
    }

    /// `forebay adhoc` without hosts and program.
    fn leader(&self, options: &[&str]) -> Command {
        let forebay = program("forebay");
        let mut command = self.cluster.hosts[0].command(USER, forebay.to_str().unwrap());
        let local = self.local.to_str().unwrap();
        let usual = [("--launcher", &*self.launcher), ("--size", "128MiB"), ("--local", local)];
        command.arg("adhoc").env("LAUNCHER", &self.launcher);
        for (option, value) in usual.into_iter().filter(|(option, _)| !options.contains(option)) {
            command.args([option, value]);
        }
        command.args(options);
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        self.adhoc(options, script).output().unwrap()
    }

    /// Starts it in the background; its program must make the file `started` to be waited for.
    fn start(&self, options: &[&str], script: &str) -> Daemon {
        let script = format!("{script}\ntouch {}/started; exec sleep 600", self.shared.display());
        let command = self.adhoc(options, &script);
        let mut leader = self.cluster.hosts[0].start_logged("adhoc", command);
        let started = self.shared.join("started");
        wait_until("the program runs", || {
            if let Some(code) = leader.exit_code() {
                panic!("{code}: {}", leader.output());
            }
            started.exists().then_some(())
        });
        leader
    }

    /// The files of the local directories, the mounts and the processes of `USER` that there are.
    fn remainders(&self) -> String {
        let mut found = String::new();
        for host in &self.cluster.hosts {
            let list =
                format!("ls -A {}; grep ^forebay- /proc/mounts || true", self.local.display());
            found += &expect_success(&host.shell(ROOT, &list));
            found.extend(host.processes().into_iter().map(|(_, line)| line + "\n"));
        }
        found
    }

    fn expect_nothing_left(&self) {
        assert_eq!(self.remainders(), "");
    }

    /// Waits until nothing is left, and returns the time.
    fn wait_until_nothing_left(&self, limit: Duration) {
        let start = Instant::now();
        while self.remainders() != "" {
            assert!(start.elapsed() < limit, "{}", self.remainders());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A launcher that `USER` can use: a copy of `nsenter` with the rights of root for that user's group.
fn install_launcher(cluster: &Cluster) -> String {
    let directory = cluster.pfs().with_file_name("launcher");
    fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(0), Some(USER.1)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    let enter = directory.join("nsenter");
    fs::copy("/usr/bin/nsenter", &enter).unwrap();
    fs::set_permissions(&enter, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut script = "#!/bin/sh\nhost=$1; shift\ncase $host in\n".to_owned();
    for host in &cluster.hosts {
        script += &format!("{}) process={};;\n", host.name, host.holder_id());
    }
    script += &format!(
        "*) echo \"no host $host\" >&2; exit 255;;\nesac\n\
         exec {} --net --mount --uts --target $process --setuid {} --setgid {} -- \"$@\"\n",
        enter.display(),
        USER.0,
        USER.1
    );
    let launcher = directory.join("launch");
    fs::write(&launcher, script).unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    launcher.display().to_string()
}

/// Makes a directory of `USER` in the shared one.
fn users_directory(allocation: &Allocation, name: &str) -> PathBuf {
    let path = allocation.shared.join(name);
    fs::create_dir(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(USER.0), Some(USER.1)).unwrap();
    path
}

#[test]
fn program_on_one_host_finds_its_input_and_its_output_is_staged_out() {
    let allocation = Allocation::new(1);
    let input = users_directory(&allocation, "input");
    fs::write(input.join("words"), "from the file system\n").unwrap();
    let results = users_directory(&allocation, "results");
    let stage_in = format!("{}:data", input.display());
    let stage_out = format!("out:{}/out", results.display());
    let log_out = format!("log:{}/log", results.display());
    let options =
        ["--stage-in", &stage_in, "--stage-out", &stage_out, "--stage-out-file", &log_out];
    let script = "cd $FOREBAY_MOUNT; mkdir out; tr a-z A-Z < data/words > out/words\n\
                  echo $FOREBAY_HOSTS > log; id -u; exit 7";
    let output = allocation.run(&options, script);
    assert_eq!(output.status.code(), Some(7), "{}", text_of(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "65534\n");
    assert_eq!(fs::read_to_string(results.join("out/words")).unwrap(), "FROM THE FILE SYSTEM\n");
    assert_eq!(fs::read_to_string(results.join("log")).unwrap(), "n1\n");
    allocation.expect_nothing_left();
}

#[test]
fn files_written_on_one_of_three_hosts_are_read_on_the_others_and_staged_out() {
    let allocation = Allocation::new(3);
    let results = users_directory(&allocation, "results");
    let stage_out = format!(".:{}/all", results.display());
    let script = "
        for host in n1 n2 n3; do
            $LAUNCHER $host dd if=/dev/urandom of=$FOREBAY_MOUNT/$host bs=1M count=20 status=none
        done
        for host in n1 n2 n3; do
            $LAUNCHER $host sh -c \"cd $FOREBAY_MOUNT; md5sum n1 n2 n3\" > $FOREBAY_MOUNT/sums-$host
        done
        cat $FOREBAY_MOUNT/sums-n1; echo $FOREBAY_HOSTS; ls $FOREBAY_ADHOC/../forebay-*/storage/flash/objects | wc -l";
    let output = allocation.run(&["--stage-out", &stage_out], script);
    let text = expect_success(&output);
    assert!(text.contains("384 MiB on 3 hosts") && text.contains("n1,n2,n3"), "{text}");
    let read = |name: &str| fs::read(results.join("all").join(name)).unwrap();
    assert_eq!(read("sums-n1"), read("sums-n2"));
    assert_eq!(read("sums-n1"), read("sums-n3"));
    let sums = Command::new("md5sum")
        .args(["n1", "n2", "n3"])
        .current_dir(results.join("all"))
        .output()
        .unwrap();
    assert_eq!(sums.stdout, read("sums-n1"));
    allocation.expect_nothing_left();
}

#[test]
fn wrong_hosts_directories_and_launchers_are_reported_and_nothing_is_left() {
    let allocation = Allocation::new(2);
    let forebay = |options: &[&str]| {
        let mut command = allocation.leader(options);
        if !options.contains(&"--") {
            command.args(["--", "true"]);
        }
        command.output().unwrap()
    };
    let refused = forebay(&["--hosts", "n[1-3]"]);
    expect_failure(&refused, "n3: the launcher");
    assert!(text_of(&refused).contains("no host n3"), "{}", text_of(&refused));
    expect_failure(&forebay(&["--hosts", "n[1-"]), "`[` without `]`");
    expect_failure(&forebay(&["--hosts", "n1,n2", "--launcher", "false"]), "`false` has ended");
    let missing = forebay(&["--hosts", "n1,n2", "--launcher", "no-such-launcher"]);
    expect_failure(&missing, "`no-such-launcher` cannot be started");
    expect_failure(&forebay(&["--hosts", "n1", "--interface", "ib7"]), "interface `ib7`");
    expect_failure(&forebay(&["--hosts", "n1", "--size", "900TiB"]), "smaller --size");
    let shared = users_directory(&allocation, "shared");
    let shared = forebay(&["--hosts", "n1,n2", "--local", shared.to_str().unwrap()]);
    expect_failure(&shared, "two hosts share");
    let local = allocation.local.display();
    let second = &allocation.cluster.hosts[1];
    expect_success(&second.shell(ROOT, &format!("chmod 755 {local}")));
    let unwritable = forebay(&["--hosts", "n1,n2"]);
    expect_failure(&unwritable, "n2: ");
    expect_failure(&unwritable, "name a directory that you may write to with --local");
    expect_success(&second.shell(ROOT, &format!("chmod 1777 {local}")));
    let not_started = forebay(&["--hosts", "n1", "--", "/no/such/program"]);
    assert_eq!(not_started.status.code(), Some(127), "{}", text_of(&not_started));
    allocation.expect_nothing_left();
}

#[test]
fn buffer_started_in_the_background_is_used_by_several_commands_and_stopped() {
    let allocation = Allocation::new(2);
    let results = users_directory(&allocation, "results");
    let forebay = program("forebay").display().to_string();
    let launcher = &allocation.launcher;
    let local = allocation.local.display();
    let start = format!(
        "{forebay} adhoc start --hosts n1,n2 --launcher {launcher} --size 128MiB --local {local}"
    );
    let script = format!(
        "variables=$({start} --stage-out out:{results}/out)
         eval \"$variables\"
         mkdir $FOREBAY_MOUNT/out
         {launcher} n2 sh -c \"echo from n2 > $FOREBAY_MOUNT/out/file\"
         cat $FOREBAY_MOUNT/out/file
         {forebay} adhoc stop
         ! {forebay} adhoc stop
         ! {start} --interface ib7",
        results = results.display()
    );
    let output = allocation.cluster.hosts[0].shell(USER, &script);
    let text = expect_success(&output);
    assert!(text.contains("no leader runs there"), "{text}");
    assert!(text.contains("interface `ib7`"), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from n2\n");
    assert_eq!(fs::read_to_string(results.join("out/file")).unwrap(), "from n2\n");
    allocation.expect_nothing_left();
}

#[test]
fn interception_library_uses_the_key_of_the_instance() {
    let allocation = Allocation::new(2);
    let library = interception_library();
    // With the library a file's descriptor is one of the mount's root.
    let program = "import os
path = os.environ['FOREBAY_MOUNT'] + '/file'
with open(path, 'w') as file:
    file.write('x' * 100000)
file = open(path)
print(len(file.read()), os.path.basename(os.readlink('/proc/self/fd/%d' % file.fileno())))
";
    let path = allocation.shared.join("open.py");
    fs::write(&path, program).unwrap();
    let run = format!("python3 {}", path.display());
    let library = format!("LD_PRELOAD={}", library.display());
    let script = format!("{run}\nenv {library} {run}\nenv FOREBAY_KEY_FILE= {library} {run}");
    let output = allocation.run(&[], &script);
    expect_success(&output);
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), 3, "{printed}");
    assert_eq!(lines[0], "100000 file");
    assert!(lines[1].starts_with("100000 i"), "{printed}");
    assert_eq!(lines[2], "100000 file");
    allocation.expect_nothing_left();
}

/// Kills the process of a host with SIGKILL.
fn kill_node(host: &cluster::Host) {
    let wanted = format!("adhoc node {} ", host.name);
    let mut processes = host.processes().into_iter();
    let (process, _) = processes.find(|(_, line)| line.contains(&wanted)).unwrap();
    let process = rustix::process::Pid::from_raw(process as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
}

/// The leader's directory of the only instance.
fn leader_directory(allocation: &Allocation) -> String {
    let list = format!("ls -d {}/forebay-*.leader", allocation.local.display());
    expect_success(&allocation.cluster.hosts[0].shell(ROOT, &list)).trim().to_owned()
}

#[test]
fn killed_leader_leaves_nothing_unless_data_waits_for_its_stage_out() {
    let allocation = Allocation::new(3);
    let mut leader = allocation.start(&[], "echo lost > $FOREBAY_MOUNT/file");
    leader.kill();
    allocation.wait_until_nothing_left(Duration::from_secs(10));
    fs::remove_file(allocation.shared.join("started")).unwrap();

    let results = users_directory(&allocation, "results");
    let stage_out = format!("out:{}/out", results.display());
    let options = ["--stage-out", stage_out.as_str()];
    let write = "mkdir $FOREBAY_MOUNT/out; dd if=/dev/urandom of=$FOREBAY_MOUNT/out/big bs=1M \
                 count=30 status=none conv=fsync; md5sum < $FOREBAY_MOUNT/out/big > $FOREBAY_MOUNT/out/sum";
    let mut leader = allocation.start(&options, write);
    let directory = leader_directory(&allocation);
    leader.kill();
    let log = leader.log.clone();
    wait_until("the hosts end", || {
        let mut hosts = allocation.cluster.hosts.iter();
        hosts.all(|host| host.processes().is_empty()).then_some(())
    });
    let told = fs::read_to_string(&log).unwrap();
    for host in ["n1", "n2", "n3"] {
        assert!(told.contains(&format!("{host}: the leader is gone; data that waits")), "{told}");
    }
    assert!(told.contains(&format!("forebay adhoc recover {directory}")), "{told}");
    // Another instance of the user on these hosts does not touch it, and says that it is there.
    let text = expect_success(&allocation.run(&[], "true"));
    assert!(text.contains("of an earlier instance holds data"), "{text}");
    let forebay = program("forebay");
    let recover = |more: &[&str]| {
        let mut command = allocation.cluster.hosts[0].command(USER, forebay.to_str().unwrap());
        command.args(["adhoc", "recover", &directory]).args(more).output().unwrap()
    };
    let text = expect_success(&recover(&[]));
    assert!(text.contains("staged 2 files"), "{text}");
    let check =
        format!("[ \"$(md5sum < {0}/out/big)\" = \"$(cat {0}/out/sum)\" ]", results.display());
    expect_success(&allocation.cluster.hosts[0].shell(ROOT, &check));
    allocation.expect_nothing_left();
    expect_failure(&recover(&[]), "No such file");
}

#[test]
fn hosts_end_when_their_leader_is_silent() {
    let allocation = Allocation::new(2);
    let mut leader = allocation.start(&[], "echo lost > $FOREBAY_MOUNT/file");
    leader.suspend();
    let stopped = Instant::now();
    let host = &allocation.cluster.hosts[1];
    while !host.processes().is_empty() {
        assert!(stopped.elapsed() < Duration::from_secs(60), "{:?}", host.processes());
        std::thread::sleep(Duration::from_millis(200));
    }
    leader.kill();
    allocation.wait_until_nothing_left(Duration::from_secs(30));
}

#[test]
fn interrupted_leader_keeps_its_results_until_they_are_discarded() {
    let allocation = Allocation::new(2);
    let results = users_directory(&allocation, "results");
    let stage_out = format!("out:{}/out", results.display());
    // The leader's host has no part of the buffer.
    let script = format!("touch {}/started; exec sleep 600", allocation.shared.display());
    let mut command = allocation.leader(&["--hosts", "n2", "--stage-out", &stage_out]);
    command.args(["--", "sh", "-ec", &script]);
    let first = &allocation.cluster.hosts[0];
    let mut leader = first.start_logged("adhoc", command);
    let started = allocation.shared.join("started");
    wait_until("the program runs", || started.exists().then_some(()));
    let directory = leader_directory(&allocation);
    assert_eq!(leader.stop(), 130, "{}", leader.output());
    let advice = format!("`forebay adhoc recover {directory}`");
    assert!(leader.output().contains(&advice), "{}", leader.output());
    let forebay = program("forebay");
    let mut discard = first.command(USER, forebay.to_str().unwrap());
    discard.args(["adhoc", "recover", "--discard", &directory]);
    expect_success(&discard.output().unwrap());
    allocation.expect_nothing_left();
    assert!(!results.join("out").exists());

    fs::remove_file(&started).unwrap();
    let mut command = allocation.leader(&["--hosts", "n2"]);
    command.args(["--", "sh", "-ec", &script]);
    let mut leader = first.start_logged("adhoc", command);
    wait_until("the program runs", || started.exists().then_some(()));
    leader.kill();
    allocation.wait_until_nothing_left(Duration::from_secs(10));
}

#[test]
fn program_on_a_lost_host_ends_with_an_error_and_results_are_kept() {
    let allocation = Allocation::new(2);
    let results = users_directory(&allocation, "results");
    let stage_out = format!("out:{}/out", results.display());
    let shared = allocation.shared.display();
    let script = format!(
        "mkdir $FOREBAY_MOUNT/out; touch {shared}/started; until [ -e {shared}/go ]; do sleep 0.05; done"
    );
    let command = allocation.adhoc(&["--stage-out", &stage_out], &script);
    let first = &allocation.cluster.hosts[0];
    let mut leader = first.start_logged("adhoc", command);
    let started = allocation.shared.join("started");
    wait_until("the program runs", || started.exists().then_some(()));
    let directory = leader_directory(&allocation);
    // The second host can no longer be reached.
    fs::write(&allocation.launcher, "#!/bin/sh\nexit 255\n").unwrap();
    kill_node(&allocation.cluster.hosts[1]);
    leader.wait_for_output("n2: lost");
    fs::write(allocation.shared.join("go"), "").unwrap();
    let code = wait_until("the leader ends", || leader.exit_code());
    assert_eq!(code, 1, "{}", leader.output());
    let advice = format!("`forebay adhoc recover {directory}`");
    let output = leader.output();
    assert!(output.contains("a host was lost") && output.contains(&advice), "{output}");
}

/// Starts an SSH server on every host but the first, for `USER`'s key. Returns a directory for `PATH`
/// with an `ssh` that knows the key and the hosts.
fn start_ssh_servers(allocation: &Allocation) -> (PathBuf, Vec<Daemon>) {
    let directory = users_directory(allocation, "ssh");
    let (host, path) = (&allocation.cluster.hosts[0], directory.display());
    let make_keys = format!(
        "cd {path}; mkdir -m 700 .ssh; ssh-keygen -q -t ed25519 -N '' -f key\n\
         cp key.pub .ssh/authorized_keys; chmod 600 .ssh/authorized_keys\n\
         dropbearkey -t ed25519 -f host_key >/dev/null 2>&1\n\
         dropbearkey -y -f host_key | sed -n 's/^ssh-/* ssh-/p' >known_hosts\n\
         printf '#!/bin/sh\\nexec /usr/bin/ssh -F {path}/config \"$@\"\\n' >ssh; chmod 755 ssh\n\
         printf 'IdentityFile {path}/key\\nUserKnownHostsFile {path}/known_hosts\\n' >config"
    );
    expect_success(&host.shell(USER, &make_keys));
    let mut config = fs::read_to_string(directory.join("config")).unwrap();
    let mut servers = Vec::new();
    for host in &allocation.cluster.hosts[1..] {
        config += &format!("Host {}\nHostName {}\n", host.name, host.address);
        // The user's home directory and shell, on this host only.
        let prepare = format!(
            "sed 's|^nobody:.*|nobody:x:{}:{}:nobody:{path}:/bin/sh|' /etc/passwd >{path}/passwd\n\
             mount --bind {path}/passwd /etc/passwd",
            USER.0, USER.1
        );
        expect_success(&host.shell(ROOT, &prepare));
        let mut command = host.command(ROOT, "dropbear");
        command.args(["-F", "-E", "-s", "-m", "-p", &format!("{}:22", host.address), "-r"]);
        command.arg(directory.join("host_key")).args(["-P", ""]);
        servers.push(host.start_logged("ssh", command));
    }
    fs::write(directory.join("config"), config).unwrap();
    (directory, servers)
}

#[test]
fn hosts_are_started_with_ssh_and_this_host_without() {
    let allocation = Allocation::new(3);
    let (bin, servers) = start_ssh_servers(&allocation);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = |hosts: &str, script: &str| {
        let mut command = allocation.leader(&["--launcher", "ssh", "--hosts", hosts]);
        command.env("PATH", &path).args(["--", "sh", "-ec", script]).output().unwrap()
    };
    let text = expect_success(&run(
        "n[1-3]",
        "echo text >$FOREBAY_MOUNT/file; for host in n2 n3; do ssh $host cat $FOREBAY_MOUNT/file; done",
    ));
    let logs = || servers.iter().map(Daemon::output).collect::<String>();
    assert!(text.starts_with("text\ntext\n"), "{text}{}", logs());
    let failed = run("n[1-2]", "ls /nowhere");
    assert_eq!(failed.status.code(), Some(2), "{}", text_of(&failed));
    assert!(text_of(&failed).contains("256 MiB on 2 hosts"), "{}", text_of(&failed));
    drop(servers);
    allocation.expect_nothing_left();
}

#[test]
fn killed_storage_daemon_is_restarted_and_synced_data_is_still_there() {
    let allocation = Allocation::new(3);
    let results = users_directory(&allocation, "results");
    let stage_out = format!("out:{}/out", results.display());
    let shared = allocation.shared.display();
    let script = format!(
        "cd $FOREBAY_MOUNT; mkdir out; dd if=/dev/urandom of=out/big bs=1M count=40 status=none \
         conv=fsync; md5sum < out/big > out/before; touch {shared}/started
         until [ -e {shared}/go ]; do sleep 0.05; done
         md5sum < out/big > out/after; $LAUNCHER n2 md5sum $FOREBAY_MOUNT/out/big"
    );
    let mut command = allocation.adhoc(&["--stage-out", &stage_out], &script);
    let mut leader = allocation.cluster.hosts[0].start_logged("adhoc", {
        command.env_remove("XDG_STATE_HOME");
        command
    });
    wait_until("the program has written", || {
        assert_eq!(leader.exit_code(), None, "{}", leader.output());
        allocation.shared.join("started").exists().then_some(())
    });
    kill_node(&allocation.cluster.hosts[1]);
    leader.wait_for_output("n2: the storage daemon runs again");
    fs::write(allocation.shared.join("go"), "").unwrap();
    let code = wait_until("the program ends", || leader.exit_code());
    assert_eq!(code, 0, "{}", leader.output());
    let read = |name: &str| fs::read_to_string(results.join("out").join(name)).unwrap();
    assert_eq!(read("before"), read("after"));
    allocation.expect_nothing_left();
}

#[test]
#[ignore = "a measurement, for an otherwise idle machine and --release"]
fn buffer_on_eight_hosts_is_ready_within_two_seconds() {
    let allocation = Allocation::new(8);
    let mut times = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let ready = allocation.shared.join("ready");
        let mut leader = {
            let script = format!("touch {}", ready.display());
            let command = allocation.adhoc(&[], &script);
            allocation.cluster.hosts[0].start_logged("adhoc", command)
        };
        while !ready.exists() {
            assert!(started.elapsed() < Duration::from_secs(60), "{}", leader.output());
            std::thread::sleep(Duration::from_millis(2));
        }
        times.push(started.elapsed());
        assert_eq!(wait_until("the program ends", || leader.exit_code()), 0);
        fs::remove_file(&ready).unwrap();
    }
    times.sort();
    let load = fs::read_to_string("/proc/loadavg").unwrap();
    println!("ready after {times:.2?}, load {load}");
    assert!(times[times.len() / 2] < Duration::from_secs(2), "{times:.2?}, load {load}");
}

#[test]
fn other_users_can_neither_read_nor_connect() {
    let allocation = Allocation::new(2);
    let mut leader = allocation.start(&[], "echo secret > $FOREBAY_MOUNT/file");
    let directory = leader_directory(&allocation);
    let home = directory.strip_suffix(".leader").unwrap();
    for host in &allocation.cluster.hosts {
        expect_success(&host.shell(USER, &format!("cat {home}/job/ss/file {home}/key")));
        for file in ["job/ss/file", "key", "pool.toml", "agent/agent.socket", "storage/socket"] {
            let read = host.shell(OTHER, &format!("cat {home}/{file}"));
            expect_failure(&read, "Permission denied");
        }
    }
    // The secret is on no command line.
    let first = &allocation.cluster.hosts[0];
    let key = expect_success(&first.shell(ROOT, &format!("cat {directory}/key")));
    assert_eq!(key.len(), 64);
    let mut lines = allocation.cluster.hosts.iter().flat_map(cluster::Host::processes);
    assert!(!lines.any(|(_, line)| line.contains(&key)));
    // With the right addresses and another key.
    let foreign = allocation.shared.join("foreign.toml");
    let text = expect_success(&first.shell(ROOT, &format!("cat {directory}/pool.toml")));
    let own_key = allocation.shared.join("foreign.key");
    fs::write(&own_key, "0".repeat(64)).unwrap();
    std::os::unix::fs::chown(&own_key, Some(OTHER.0), Some(OTHER.1)).unwrap();
    fs::set_permissions(&own_key, fs::Permissions::from_mode(0o600)).unwrap();
    let line = text.lines().find(|line| line.starts_with("key_file")).unwrap();
    fs::write(&foreign, text.replace(line, &format!("key_file = \"{}\"", own_key.display())))
        .unwrap();
    let status = allocation.cluster.hosts[1]
        .forebay(OTHER, &["status", "--pool", foreign.to_str().unwrap()]);
    expect_failure(&status, "the controller is unreachable");
    // Even with the right key a user is refused who does not claim to be the owner.
    // Without O_CREAT, which fs.protected_regular forbids in a sticky directory.
    let mut replaced = fs::OpenOptions::new().write(true).truncate(true).open(&own_key).unwrap();
    replaced.write_all(key.as_bytes()).unwrap();
    let status = allocation.cluster.hosts[1]
        .forebay(OTHER, &["status", "--pool", foreign.to_str().unwrap()]);
    expect_failure(&status, "the pool belongs to user 65534, not to user 1");
    leader.stop();
    allocation.expect_nothing_left();
}
