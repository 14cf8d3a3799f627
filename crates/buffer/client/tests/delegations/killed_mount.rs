//! The process of a mount is killed while a program creates files.

use super::creates::read_elsewhere;
use super::names_in;
use super::support::process::{Process, be_the_mount, start_mount};
use super::support::{INSTANCE, Temporary, attach, make_instance, noise};
use forebay_client::{ClientOptions, Fs, MountOptions, mount};
use forebay_random::RandomSequence;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MOUNT: &str = "delegations::killed_mount::mount_process";
const LENGTH: u64 = 3901;
/// Files that are synced one by one, with their directory.
const SYNCED: usize = 20;
/// Changes of which the daemon may not know when the mount is killed.
const MAX_OUTSTANDING: usize = 4;

#[test]
#[ignore = "not a test: a mount that another test kills"]
fn mount_process() {
    be_the_mount(|address, path| {
        let fs = Fs::attach(address, INSTANCE, ClientOptions::default()).unwrap();
        let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
        mount(fs, path, &options).unwrap()
    });
}

fn name(number: usize) -> String {
    format!("f{number:05}")
}

/// Creates files until that fails, and counts those that are closed. The first ones are synced.
fn create_files(dir: &Path, closed: &AtomicUsize) -> io::Result<()> {
    for number in 0.. {
        let mut file = File::create_new(dir.join(name(number)))?;
        file.write_all(&noise(LENGTH, number as u64))?;
        if number < SYNCED {
            file.sync_all()?;
            File::open(dir)?.sync_all()?;
        }
        drop(file);
        closed.store(number + 1, Ordering::Release);
    }
    Ok(())
}

#[test]
fn killed_mount_leaves_whole_files_except_the_last_ones() {
    let temporary = Temporary::new();
    let mut random = RandomSequence::new(3);
    for round in 0..3 {
        let daemon = Process::start(&temporary.dir(&format!("flash{round}")));
        make_instance(daemon.local(), 1 << 30);
        let at = temporary.dir(&format!("mnt{round}"));
        let mut child = start_mount(MOUNT, &daemon.local(), &at);
        let dir = at.join("dir");
        fs::create_dir(&dir).unwrap();
        let closed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let program = scope.spawn(|| create_files(&dir, &closed));
            while closed.load(Ordering::Acquire) < 2 * SYNCED && !program.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(random.below(50).into()));
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(program.join().unwrap().is_err());
        });
        let closed = closed.into_inner();
        assert!(closed >= 2 * SYNCED, "{closed} files were created");
        let unmounted = Command::new("umount").args(["-l".as_ref(), at.as_os_str()]).status();
        assert!(unmounted.unwrap().success());

        let other = attach(daemon.local());
        let names = names_in(&other);
        let is_missing = |number: &usize| names.binary_search(&name(*number)).is_err();
        assert!(!(0..SYNCED).any(|number| is_missing(&number)), "a synced file is missing");
        let missing = (0..closed).filter(is_missing).count();
        assert!(missing <= MAX_OUTSTANDING, "{missing} of {closed} files are missing");
        // The one that the program was creating may be there.
        assert!(names.len() + missing <= closed + 1, "{names:?}");
        for (number, name) in (0..=closed).map(|number| (number, name(number))) {
            if names.contains(&name) {
                let (found, contents) =
                    (read_elsewhere(&other, &name), noise(LENGTH, number as u64));
                let is_whole = found == contents || (number == closed && found.is_empty());
                assert!(is_whole, "{name} of {closed}");
            }
        }
    }
}
