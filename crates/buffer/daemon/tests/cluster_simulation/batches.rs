//! Batches of requests: all kinds that the client library makes, without faults, and those of processes.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use forebay_client::{Admin, ClientOptions, Fs, NewFile};
use forebay_protocol::message::{InstanceSpec, SetAttr};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Attr, Errno, Ino, InstanceId};

use crate::actor_thread::{self, Outcome};
use crate::faults::Faults;
use crate::machines::MachineId;
use crate::network::address;
use crate::process::{Ended, FileState, Process, mark_uncertain, set_certain};
use crate::world::World;

/// Files in the batches: more than one batch has.
const FILES: u8 = 40;
/// Files in the batches of a process.
const FILES_OF_PROCESS: usize = 6;

impl Process {
    /// Stores several files in the directory `out`, looks them up, and removes some, which are made anew.
    pub fn use_batches(&mut self, out: &Path) -> Result<(), Ended> {
        let (fs, files) = (self.own.clone(), self.files.clone());
        let name = |number| format!("b{}_{number}", self.host);
        let names: Vec<String> = (0..FILES_OF_PROCESS).map(name).collect();
        let paths: Vec<PathBuf> = names.iter().map(|name| out.join(name)).collect();
        let dir = fs.resolve(out, true).map_err(|errno| self.check_error("find", out, errno))?.ino;

        let cuts = self.cuts_so_far();
        let data: Vec<Vec<u8>> = paths.iter().map(|_| self.some_bytes(4000)).collect();
        paths.iter().for_each(|path| drop(mark_uncertain(&files, path)));
        let new = |(name, data): (&String, &Vec<u8>)| NewFile {
            name: name.clone().into_bytes(),
            set: SetAttr::default(),
            data: data.clone(),
        };
        let put = fs.put_files(dir, names.iter().zip(&data).map(new).collect());
        for ((path, data), put) in paths.iter().zip(&data).zip(&put) {
            match put {
                Ok(_) => set_certain(&files, path, Some(data.clone()), cuts),
                Err(Errno::ENOSPC | Errno::EOPNOTSUPP) => {}
                Err(errno) => return Err(self.check_error("put", path, *errno)),
            }
        }
        for ((path, found), put) in paths.iter().zip(fs.lookup_many(dir, &names)).zip(&put) {
            match (found, put) {
                (Ok(found), Ok(put)) => assert!(
                    found.ino == put.ino || self.may_have_lost_files(),
                    "{} is another file",
                    path.display()
                ),
                (Err(errno), Ok(_)) => return Err(self.check_error("look up", path, errno)),
                (_, Err(_)) => {}
            }
        }

        let some = &paths[..FILES_OF_PROCESS / 2];
        let before: Vec<FileState> = some.iter().map(|path| mark_uncertain(&files, path)).collect();
        let removed = fs.unlink_many(Ino::ROOT, some);
        for ((path, before), removed) in some.iter().zip(&before).zip(&removed) {
            match self.check_missing(before, path, *removed) {
                Ok(()) => set_certain(&files, path, None, before.cuts),
                Err(Errno::ENOENT | Errno::ENOSPC) => {}
                Err(errno) => return Err(self.check_error("remove", path, errno)),
            }
        }
        let cuts = self.cuts_so_far();
        some.iter().for_each(|path| drop(mark_uncertain(&files, path)));
        let made = fs.create_many(Ino::ROOT, some, 0o644);
        for ((path, made), removed) in some.iter().zip(made).zip(&removed) {
            match made {
                Ok(_) => set_certain(&files, path, Some(Vec::new()), cuts),
                Err(Errno::ENOSPC) => {}
                Err(Errno::EEXIST) => assert!(
                    removed.is_err() || self.may_have_lost_files(),
                    "{} was removed and is there",
                    path.display()
                ),
                Err(errno) => return Err(self.check_error("create", path, errno)),
            }
        }
        Ok(())
    }

    fn cuts_so_far(&self) -> u64 {
        self.losses.power_cuts.load(Ordering::Relaxed)
    }

    fn some_bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.random.below(most);
        self.bytes(length)
    }

    /// Whether changes that are not synced may be lost.
    fn may_have_lost_files(&self) -> bool {
        let losses = &self.losses;
        let power = losses.power.load(Ordering::Relaxed);
        power || losses.disk.load(Ordering::Relaxed) || actor_thread::is_killed()
    }
}

fn names(prefix: &str) -> Vec<String> {
    (0..FILES).map(|number| format!("{prefix}{number}")).collect()
}

fn all<T>(results: Vec<Result<T, Errno>>) -> Vec<T> {
    results.into_iter().collect::<Result<_, _>>().unwrap()
}

fn use_batches(options: ClientOptions) -> Result<(), Errno> {
    let id = InstanceId(1);
    let admin = Admin::connect(address(0), options.clone())?;
    admin.create_instance(InstanceSpec {
        id,
        uid: 0,
        gid: 0,
        mode: 0o755,
        capacity: 1 << 20,
        inodes: 1000,
        placement: Placement::single_node(),
    })?;
    let fs = Fs::attach(address(0), id, options)?;
    let new = |(name, number): (String, u8)| NewFile {
        name: name.into_bytes(),
        set: SetAttr::default(),
        data: vec![number; 100],
    };
    let (put, made) = (names("put"), names("made"));
    let files = put.iter().cloned().zip(0..).map(new).collect();
    let stored: Vec<Attr> = all(fs.put_files(Ino::ROOT, files));
    let wanted: Vec<(Ino, u64)> = stored.iter().map(|attr| (attr.ino, attr.size)).collect();
    for ((fetched, data), number) in all(fs.fetch_files(&wanted)).into_iter().zip(0..) {
        assert_eq!((fetched.ino, data), (stored[usize::from(number)].ino, vec![number; 100]));
    }
    let inodes = |attrs: &[Attr]| attrs.iter().map(|attr| attr.ino).collect::<Vec<_>>();
    assert_eq!(inodes(&all(fs.lookup_many(Ino::ROOT, &put))), inodes(&stored));
    let created = all(fs.create_many(Ino::ROOT, &made, 0o644));
    assert_eq!(inodes(&all(fs.stat_many(Ino::ROOT, &made, true))), inodes(&created));
    all(fs.unlink_many(Ino::ROOT, &[put, made].concat()));
    assert!(fs.read_dir(Ino::ROOT, 0, 1 << 16, false)?.entries.len() <= 2, "`.` and `..`");
    drop(fs);
    admin.remove_instance(id, false)
}

#[test]
fn requests_of_batches_are_answered() {
    let mut world = World::new(0, Faults::none(), false);
    world.users.clear();
    let options = world.options();
    world.start_actor(MachineId::Host(0), move || {
        use_batches(options).unwrap();
        Outcome::Nothing
    });
    world.run();
}
