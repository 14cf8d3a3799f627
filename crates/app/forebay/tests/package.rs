//! The package for Debian and Ubuntu, installed into a minimal system that is booted without a
//! network.
//!
//! Needs root: it makes namespaces, and a group of processes for systemd.

use crate::cluster;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use cluster::{build_packages, killed_with_us, program, text_of, wait_until};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", text_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds what the package contains, and the package in `directory`.
fn build_package(directory: &Path) -> PathBuf {
    build_packages();
    let built = program("forebay").parent().unwrap().to_owned();
    let script = repository().join("scripts/deb.sh");
    let package =
        succeed(Command::new(script).arg(built).arg(directory).env("DEB_COMPRESSION", "0"));
    PathBuf::from(package.trim())
}

/// A group of processes of its own in the hierarchy of systemd, so that the booted systemd cannot
/// touch those of this host. Removed when it is dropped.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn new() -> ControlGroup {
        let hierarchies = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup"].map(Path::new);
        let is_hierarchy = |path: &&Path| path.join("cgroup.procs").exists();
        let hierarchy = hierarchies.into_iter().find(is_hierarchy).expect("control groups");
        let group = hierarchy.join(format!("forebay-test-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        ControlGroup(group)
    }
}

/// Removes a directory of control groups, whose files cannot be removed.
fn remove_groups(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(directory);
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            remove_groups(&self.0);
            if !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// A booted system. Dropping it ends all its processes, and its mounts vanish with them.
struct System {
    child: Child,
    /// Its process 1, as this host numbers it.
    init: u32,
    _group: ControlGroup,
}

impl System {
    fn boot(root: &Path) -> System {
        let group = ControlGroup::new();
        let script = "echo $$ > \"$0/cgroup.procs\"; exec unshare --mount --pid --net --uts --ipc \
                      --cgroup --fork --kill-child sh \"$1\" \"$2\"";
        let child = killed_with_us("sh")
            .args(["-c", script])
            .arg(&group.0)
            .arg(repository().join("crates/app/forebay/tests/package/boot.sh"))
            .arg(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let init = wait_until("the first process starts", || {
            fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
        });
        let system = System { child, init, _group: group };
        wait_until("systemd runs", || {
            let state = system.run("systemctl is-system-running");
            matches!(text_of(&state).trim(), "running" | "degraded").then_some(())
        });
        system
    }

    /// Runs a shell command in the system.
    fn run(&self, command: &str) -> Output {
        let init = self.init.to_string();
        Command::new("nsenter")
            .args(["--all", "--root", "--wd", "--target", &init, "--", "sh", "-ec", command])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin")
            .env("HOME", "/root")
            .output()
            .unwrap()
    }

    fn expect(&self, command: &str) -> String {
        let output = self.run(command);
        let journal = || text_of(&self.run("journalctl --no-pager -n 60 -u 'forebay*'"));
        assert!(output.status.success(), "{command}: {}\n{}", text_of(&output), journal());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_commands_install_the_package_and_start_a_pool_of_one_host() {
    assert!(rustix::process::geteuid().is_root(), "this test makes namespaces: run it as root");
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let script = repository().join("scripts/minimal-root.py");
    let packages = ["systemd", "fuse3", "libgcc-s1", "procps", "python3"];
    succeed(Command::new(script).arg(&root).args(packages));
    // No network is configured, so nothing need wait for it.
    let units = root.join("etc/systemd/system");
    for unit in ["systemd-networkd.service", "systemd-networkd-wait-online.service"] {
        std::os::unix::fs::symlink("/dev/null", units.join(unit)).unwrap();
    }
    let package = build_package(directory.path());
    fs::copy(package, root.join("root/forebay.deb")).unwrap();
    let system = System::boot(&root);

    system.expect("dpkg --install /root/forebay.deb && systemctl start forebay.target");
    let installed = "for name in forebay dw_wlm_cli dwstat forebayd nornsctl; do \
                     $name --version; done; ldconfig -p | grep -c 'libnorns\\|libdatawarp'; \
                     test -e /usr/include/datawarp.h; zcat /usr/share/man/man8/forebayd.8.gz";
    let manual = system.expect(installed);
    assert!(manual.contains(".TH FOREBAYD 8") && manual.contains("pool.toml"), "{manual}");
    wait_until("the storage node is online", || {
        let status = text_of(&system.run("forebay status"));
        (status.contains("box") && status.contains("online")).then_some(())
    });

    let import = "cd / && python3 -c 'import forebay; node, = forebay.pool.nodes(); \
                  print(forebay.program(), forebay.machines()[0].machine, node.online)'";
    assert_eq!(system.expect(import).trim(), "/usr/bin/forebay toy True");

    fs::write(
        root.join("root/job.sh"),
        "#!/bin/sh\n#DW jobdw capacity=64MiB type=scratch access_mode=striped\n\
         #DW stage_out type=file source=$DW_JOB_STRIPED/out destination=/var/tmp/out\n\
         seq 1000 > $DW_JOB_STRIPED/out\n",
    )
    .unwrap();
    system.expect("forebay run /root/job.sh && seq 1000 | cmp - /var/tmp/out");

    system.expect(
        "mkdir /root/flash && mount -t forebay /root/flash /mnt -o size=64MiB && seq 10 > /mnt/f && \
         umount /mnt && mount -t forebay /root/flash /mnt && seq 10 | cmp - /mnt/f && umount /mnt",
    );

    // Reloads, and restarts with what is stored.
    system.expect("forebay create-persistent kept --capacity 64MiB");
    system.expect("systemctl reload forebay-controller forebay-storage forebay-agent");
    system.expect("systemctl restart forebay-controller forebay-storage");
    wait_until("the storage node is back", || {
        let status = text_of(&system.run("forebay status"));
        (status.contains("kept") && status.contains("online")).then_some(())
    });
    // Warnings of the agent, which has lost the controller for a while.
    let warnings = system.expect("journalctl --no-pager -p warning -u forebay-agent");
    assert!(warnings.contains("the connection to the controller"), "{warnings}");

    // A second storage node, whose daemon has another core of this host.
    system.expect(
        "size=$(sed -n 's/^capacity = //p' /etc/forebay/pool.toml) && printf '[[storage]]\\n\
         name = \"box-b\"\\nhost = \"box\"\\naddress = \"127.0.0.1:7512\"\\n\
         directory = \"/var/lib/forebay/storage-b\"\\ncapacity = %s\\n' \"$size\" \
         >> /etc/forebay/pool.toml && systemctl reload forebay-controller && \
         systemctl start forebay-storage@box-b",
    );
    wait_until("both storage nodes are online", || {
        let nodes = text_of(&system.run("forebay status | grep -c ' online'"));
        (nodes.trim() == "2").then_some(())
    });
    system.expect("systemctl restart forebay-agent");
    fs::write(
        root.join("root/both.sh"),
        "#!/bin/sh\n#DW jobdw capacity=128MiB type=scratch access_mode=striped\n\
         head -c 32M /dev/zero > $DW_JOB_STRIPED/data && sync $DW_JOB_STRIPED/data\n\
         for node in storage storage-b; do\n\
         test $(du -sk /var/lib/forebay/$node/flash | cut -f 1) -ge 8192 || exit 1\ndone\n",
    )
    .unwrap();
    system.expect("forebay run /root/both.sh");

    system.expect("dpkg --purge forebay");
    let left = text_of(
        &system.run("pgrep -x forebayd || grep /forebay /proc/mounts || ls -A /etc/forebay"),
    );
    assert!(left.starts_with("ls: cannot access"), "{left}");
    let rest = system.expect("ls /var/lib/forebay; find / -xdev -name '*forebay*' -path '*/usr/*'");
    assert_eq!(rest.split_whitespace().collect::<Vec<_>>(), ["controller", "storage", "storage-b"]);
}
