//! Removals, and creates, that a mount reports before the storage daemon has made them: programs do not wait for
//! the daemon, no other client sees anything else afterwards, whatever is killed, and a change that fails is
//! reported by a sync of the directory.
//!
//! Needs root, because the kernel checks permissions for all users.

mod creates;
mod killed_mount;
use crate::support;
use forebay_client::{ClientOptions, Fs, Mount, MountOptions, mount};
use forebay_protocol::{Errno, Ino};
use forebay_random::RandomSequence;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::faulty_network::FaultyNetwork;
use support::process::Process;
use support::{INSTANCE, Temporary, attach, make_instance};

/// Longer than a session gets no lease after its lease was recalled.
const AFTER_DENIAL: Duration = Duration::from_millis(1100);

/// A daemon in another process, and a mount whose network fails.
struct Site {
    mount: Option<Mount>,
    dir: PathBuf,
    daemon: Process,
    network: FaultyNetwork,
    _temporary: Temporary,
}

impl Site {
    fn new(network: FaultyNetwork) -> Site {
        let temporary = Temporary::new();
        let daemon = Process::start(&temporary.dir("flash"));
        make_instance(daemon.local(), 64 << 20);
        let system = Arc::new(network.clone());
        let options = ClientOptions { system, ..ClientOptions::default() };
        let fs = Fs::attach(daemon.local(), INSTANCE, options).unwrap();
        let at = temporary.dir("mnt");
        let kernel_permissions = MountOptions { kernel_permissions: true, ..Default::default() };
        let mount = Some(mount(fs, &at, &kernel_permissions).unwrap());
        let dir = at.join("dir");
        fs::create_dir(&dir).unwrap();
        Site { mount, dir, daemon, network, _temporary: temporary }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn sync(&self) -> std::io::Result<()> {
        File::open(&self.dir).unwrap().sync_all()
    }

    /// Has the mount get its delegation, and know the attributes of the directory, and creates this file.
    fn prepare(&self, name: &str) -> PathBuf {
        File::create(self.path("other")).unwrap();
        fs::remove_file(self.path("other")).unwrap();
        File::create(self.path(name)).unwrap();
        fs::metadata(&self.dir).unwrap();
        self.path(name)
    }

    /// The names in the directory, as another client finds them.
    fn names_elsewhere(&self) -> Vec<String> {
        names_in(&attach(self.daemon.local()))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.network.cut(false);
        if let Some(mount) = self.mount.take() {
            support::unmount(mount);
        }
    }
}

fn names_in(fs: &Fs) -> Vec<String> {
    let dir = fs.lookup(Ino::ROOT, b"dir").unwrap();
    let page = fs.read_dir(dir.ino, 0, 1 << 20, false).unwrap();
    assert!(page.end);
    let mut names: Vec<String> = page
        .entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
        .filter(|name| name != "." && name != "..")
        .collect();
    names.sort();
    names
}

fn names_here(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> =
        entries.map(name).map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn program_does_not_wait_for_the_daemon_to_remove_a_file() {
    let site = Site::new(FaultyNetwork::default());
    let mut was_early = false;
    // What the mount knows expires after a second, for which a busy machine may not be enough.
    for round in 0..10 {
        let path = site.prepare(&format!("file{round}"));
        site.daemon.pause(true);
        std::thread::scope(|scope| {
            let removal = scope.spawn(|| fs::remove_file(&path));
            let begun = Instant::now();
            while !removal.is_finished() && begun.elapsed() < Duration::from_millis(500) {
                std::thread::sleep(Duration::from_millis(1));
            }
            was_early |= removal.is_finished();
            site.daemon.pause(false);
            removal.join().unwrap().unwrap();
        });
        assert!(fs::metadata(&path).is_err());
        if was_early {
            break;
        }
    }
    assert!(was_early, "each removal took a reply of the daemon");
    assert_eq!(names_here(&site.dir), [] as [&str; 0]);
    site.sync().unwrap();
    assert_eq!(site.names_elsewhere(), [] as [&str; 0]);
}

#[test]
fn other_client_sees_no_file_that_was_removed_before_it_attached() {
    let site = Site::new(FaultyNetwork::new(5000, 0));
    for round in 0..3 {
        let files: Vec<PathBuf> =
            (0..6).map(|file| site.path(&format!("f{round}.{file}"))).collect();
        files.iter().for_each(|file| drop(File::create(file).unwrap()));
        site.prepare("kept");
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
        let other = attach(site.daemon.local());
        assert_eq!(names_in(&other), ["kept"]);
        // Also while it stays, and after it has gone.
        let file = site.prepare("kept");
        fs::remove_file(&file).unwrap();
        assert_eq!(names_in(&other), [] as [&str; 0]);
        drop(other);
        std::thread::sleep(AFTER_DENIAL);
    }
}

#[test]
fn other_operations_are_carried_out_after_removals() {
    let site = Site::new(FaultyNetwork::new(20_000, 0));
    let (file, dir) = (site.path("file"), &site.dir);
    for round in 0..8 {
        let path = site.prepare("file");
        fs::write(site.path("second"), "second").unwrap();
        fs::metadata(dir).unwrap();
        fs::remove_file(&path).unwrap();
        match round {
            0 => assert!(fs::metadata(&file).is_err()),
            1 => drop(File::create_new(&file).unwrap()),
            2 => fs::rename(site.path("second"), &file).unwrap(),
            3 => fs::hard_link(site.path("second"), &file).unwrap(),
            4 => fs::create_dir(&file).unwrap(),
            5 => std::os::unix::fs::symlink("second", &file).unwrap(),
            6 => {
                fs::remove_file(site.path("second")).unwrap();
                let gone = site.path("gone");
                fs::rename(dir, dir.with_file_name("moved")).unwrap();
                fs::remove_dir(dir.with_file_name("moved")).unwrap();
                fs::create_dir(dir).unwrap();
                fs::write(gone, "").unwrap();
            }
            _ => assert_eq!(names_here(dir), ["second"]),
        }
        let expected: &[&str] = match round {
            0 | 7 => &["second"],
            2 => &["file"],
            6 => &["gone"],
            _ => &["file", "second"],
        };
        assert_eq!(names_here(dir), expected, "round {round}");
        let _ = fs::remove_dir(&file);
        for name in ["file", "second", "gone"] {
            let _ = fs::remove_file(site.path(name));
        }
    }
}

#[test]
fn removals_survive_kills_of_the_daemon_and_lost_replies() {
    let mut site = Site::new(FaultyNetwork::new(2000, 17));
    let mut random = RandomSequence::new(7);
    let mut expected: Vec<String> = Vec::new();
    for round in 0..6 {
        for number in 0..20 {
            let name = format!("f{round:02}.{number:02}");
            File::create(site.path(&name)).unwrap();
            expected.push(name);
        }
        fs::metadata(&site.dir).unwrap();
        let kill_after = random.below(16);
        for removed in 0..16 {
            let name = expected.remove(random.below(expected.len() as u32) as usize);
            if removed == kill_after {
                site.daemon.pause(true);
                std::thread::scope(|scope| {
                    let path = site.path(&name);
                    let removal = scope.spawn(|| fs::remove_file(path));
                    std::thread::sleep(Duration::from_millis(20));
                    site.daemon.kill();
                    site.daemon.restart();
                    removal.join().unwrap().unwrap();
                });
            } else {
                fs::remove_file(site.path(&name)).unwrap();
            }
        }
        if round % 2 == 0 {
            site.sync().unwrap();
            site.daemon.kill();
            site.daemon.restart();
        }
        expected.sort();
        assert_eq!(site.names_elsewhere(), expected, "round {round}");
        assert_eq!(names_here(&site.dir), expected, "round {round}");
        std::thread::sleep(AFTER_DENIAL);
    }
}

#[test]
fn sync_of_a_directory_reports_that_a_removal_was_refused() {
    let site = Site::new(FaultyNetwork::default());
    let mut was_early = false;
    for round in 0..5 {
        let name = format!("file{round}");
        let path = site.prepare(&name);
        site.network.cut(true);
        let removal = std::thread::spawn(move || fs::remove_file(path));
        std::thread::sleep(Duration::from_millis(300));
        if !removal.is_finished() {
            site.network.cut(false); // the machine is too busy
            removal.join().unwrap().unwrap();
            continue;
        }
        removal.join().unwrap().unwrap();
        was_early = true;
        // Another client gets access when the mount has not answered in time, and relies on the file.
        let other = attach(site.daemon.local());
        assert_eq!(names_in(&other), [name.as_str()]);
        drop(other);
        site.network.cut(false);
        let failed = site.sync().unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(Errno::EIO.0));
        site.sync().unwrap();
        assert!(fs::metadata(site.path(&name)).unwrap().is_file(), "the mount shows what is there");
        fs::remove_file(site.path(&name)).unwrap();
        assert_eq!(site.names_elsewhere(), [] as [&str; 0]);
        break;
    }
    assert!(was_early, "each removal took a reply of the daemon");
}
