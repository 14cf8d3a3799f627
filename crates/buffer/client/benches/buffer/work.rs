//! The work of client processes.

use crate::Outcome;
use crate::site::{INSTANCE, Place, STRIPE, key};
use forebay_client::{ClientOptions, Fs, Results};
use forebay_policy::layout::Layout;
use forebay_protocol::message::{NewInode, OpenMode};
use forebay_protocol::{Attr, Errno, FileKind, Ino};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub const MIB: u64 = 1 << 20;

/// Times at which written data are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncTime {
    Never,
    AtEnd,
    EachWrite,
}

/// The work of one client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    Create(u64),
    Stat(u64),
    Unlink(u64),
    Write {
        size: u64,
        count: u64,
        /// All clients write one file, whose blocks they take in turn.
        shared: bool,
        /// The file is new.
        fresh: bool,
        sync: SyncTime,
    },
    Read {
        size: u64,
        count: u64,
        shared: bool,
    },
}

/// The message that starts a client.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientTask {
    pub place: Place,
    pub task: Task,
    pub dir: PathBuf,
    /// The index of the client.
    pub client: u64,
    pub clients: u64,
}

/// A client process: reads its task, prepares it, waits for a line, and prints the seconds that the
/// task took.
pub fn run_client() -> Outcome<()> {
    let mut lines = std::io::stdin().lines();
    let mut next = || lines.next().unwrap_or(Ok(String::new()));
    let task: ClientTask = serde_json::from_str(&next()?)?;
    let run = prepare(&task)?;
    println!("ready");
    next()?;
    let started = Instant::now();
    run()?;
    println!("{}", started.elapsed().as_secs_f64());
    Ok(())
}

type Run = Box<dyn FnOnce() -> Outcome<()>>;

/// The directory of a client, which is on the first of the daemons for the first client, on the second for
/// the second, and so on.
fn directory_of(client: &ClientTask) -> Outcome<String> {
    let daemons = client.place.nodes(&client.dir).0.len();
    let layout = Layout::new(daemons.try_into()?, STRIPE).ok_or("no daemon")?;
    let daemon = client.client % daemons as u64;
    let prefix = format!("{:?}{}of{}", client.place, client.client, client.clients);
    let mut names = (0..100).map(|attempt| format!("{prefix}.{attempt}"));
    let is_there = |name: &String| {
        let node = layout.metadata_node_for_dir(Ino::ROOT, name.as_bytes());
        u64::from(node.0) == daemon
    };
    Ok(names.find(is_there).ok_or("no name of a directory leads to the daemon")?)
}

fn prepare(client: &ClientTask) -> Outcome<Run> {
    let directory = directory_of(client)?;
    let names = move |count: u64| (0..count).map(move |i| format!("file{i}"));
    let path = match client.place {
        Place::Base => Some(client.dir.join("base")),
        Place::Mount => Some(client.dir.join("mnt")),
        Place::Gluster => Some(client.dir.join("gluster")),
        Place::Library
        | Place::LibraryTwo
        | Place::Batches
        | Place::BatchesTwo
        | Place::Stream
        | Place::Tcp
        | Place::TcpBatches
        | Place::TcpTwo
        | Place::TcpIntegrity
        | Place::TcpEncrypted => None,
    };
    match (client.task, path) {
        (Task::Create(count), Some(path)) => {
            let home = path.join(directory);
            fs::create_dir_all(&home)?;
            Ok(Box::new(move || {
                for name in names(count) {
                    drop(fs::File::create_new(home.join(name))?);
                }
                Ok(())
            }))
        }
        (Task::Stat(count), Some(path)) => Ok(Box::new(move || {
            for name in names(count) {
                fs::metadata(path.join(&directory).join(name))?;
            }
            Ok(())
        })),
        (Task::Unlink(count), Some(path)) => Ok(Box::new(move || {
            for name in names(count) {
                fs::remove_file(path.join(&directory).join(name))?;
            }
            Ok(())
        })),
        (Task::Create(_) | Task::Stat(_) | Task::Unlink(_), None) => {
            let attached = attach(client)?;
            let created = attached.mkdir(Ino::ROOT, directory.as_bytes(), 0o755);
            let home = match created {
                Err(Errno::EEXIST) => attached.lookup(Ino::ROOT, directory.as_bytes())?,
                other => other?,
            };
            let (task, per_batch) = (client.task, client.place.operations_per_batch());
            Ok(Box::new(move || {
                let (Task::Create(count) | Task::Stat(count) | Task::Unlink(count)) = task else {
                    return Ok(());
                };
                if per_batch > 1 {
                    let names: Vec<String> = names(count).collect();
                    let mut batches = names.chunks(per_batch);
                    return batches
                        .try_for_each(|names| act_on_all(&attached, home.ino, task, names));
                }
                names(count).try_for_each(|name| act_on(&attached, home.ino, task, name.as_bytes()))
            }))
        }
        (Task::Write { .. } | Task::Read { .. }, path) => prepare_data(client, path),
    }
}

fn act_on(attached: &Fs, home: Ino, task: Task, name: &[u8]) -> Outcome<()> {
    match task {
        Task::Create(_) => {
            let new = NewInode::Node(FileKind::File, 0);
            attached.make_inode(home, name, new, 0o644)?;
        }
        Task::Stat(_) => drop(attached.lookup(home, name)?),
        Task::Unlink(_) | Task::Write { .. } | Task::Read { .. } => attached.unlink(home, name)?,
    }
    Ok(())
}

fn act_on_all(attached: &Fs, home: Ino, task: Task, names: &[String]) -> Outcome<()> {
    let results: Vec<Result<(), Errno>> = match task {
        Task::Create(_) => without_attributes(attached.create_many(home, names, 0o644)),
        Task::Stat(_) => without_attributes(attached.lookup_many(home, names)),
        Task::Unlink(_) | Task::Write { .. } | Task::Read { .. } => {
            attached.unlink_many(home, names)
        }
    };
    Ok(results.into_iter().collect::<Result<(), Errno>>()?)
}

fn without_attributes(results: Results<Attr>) -> Results<()> {
    results.into_iter().map(|result| result.map(drop)).collect()
}

fn attach(client: &ClientTask) -> Outcome<Fs> {
    let options = ClientOptions { key: Some(key()?), ..ClientOptions::default() };
    Ok(Fs::attach(client.place.nodes(&client.dir), INSTANCE, options)?)
}

/// An open file.
enum Target {
    Library(Arc<forebay_client::File>),
    Base(fs::File),
}

impl Target {
    fn write(&self, data: &[u8], offset: u64) -> Outcome<()> {
        match self {
            Target::Library(file) => Ok(file.write_all_at(data, offset)?),
            Target::Base(file) => Ok(file.write_all_at(data, offset)?),
        }
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Outcome<()> {
        match self {
            Target::Library(file) => match file.read_at(into, offset)? {
                count if count == into.len() => Ok(()),
                count => Err(format!("{count} bytes instead of {}", into.len()).into()),
            },
            Target::Base(file) => Ok(file.read_exact_at(into, offset)?),
        }
    }

    fn sync(&self, data_only: bool) -> Outcome<()> {
        match self {
            Target::Library(file) => Ok(file.fsync(data_only)?),
            Target::Base(file) if data_only => Ok(file.sync_data()?),
            Target::Base(file) => Ok(file.sync_all()?),
        }
    }
}

fn prepare_data(client: &ClientTask, path: Option<PathBuf>) -> Outcome<Run> {
    let (index, clients) = (client.client, client.clients);
    let (Task::Write { size, shared, .. } | Task::Read { size, shared, .. }) = client.task else {
        return Err("not a task with data".into());
    };
    let name = if shared { "shared".to_owned() } else { format!("data{index}") };
    let fresh = matches!(client.task, Task::Write { fresh: true, .. });
    let target = match path {
        Some(path) => Target::Base(open(&path.join(name), fresh)?),
        None => {
            let attached = attach(client)?;
            if fresh {
                match attached.unlink(Ino::ROOT, name.as_bytes()) {
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            let mode = OpenMode {
                read: true,
                write: true,
                truncate: false,
                descriptor: client.place.is_local(),
                ..OpenMode::NONE
            };
            let opened = attached.create(Ino::ROOT, name.as_bytes(), 0o644, false, mode)?;
            Target::Library(opened.file)
        }
    };
    let offset = move |i: u64| size * if shared { i * clients + index } else { i };
    let mut buffer = vec![index as u8 + 1; size as usize];
    Ok(match client.task {
        Task::Write { count, sync, .. } => Box::new(move || {
            for i in 0..count {
                target.write(&buffer, offset(i))?;
                if sync == SyncTime::EachWrite {
                    target.sync(true)?;
                }
            }
            match sync {
                SyncTime::AtEnd => target.sync(false),
                SyncTime::Never | SyncTime::EachWrite => Ok(()),
            }
        }),
        Task::Read { count, .. } => Box::new(move || {
            for i in 0..count {
                target.read(&mut buffer, offset(i))?;
            }
            Ok(())
        }),
        Task::Create(_) | Task::Stat(_) | Task::Unlink(_) => {
            return Err("not a task with data".into());
        }
    })
}

fn open(path: &Path, fresh: bool) -> Outcome<fs::File> {
    if fresh && path.exists() {
        fs::remove_file(path)?;
    }
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(false);
    Ok(options.open(path)?)
}

/// Receives one TCP connection on loopback, and prints its rate in bytes per second.
pub fn run_stream_receiver() -> Outcome<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?);
    let (mut socket, _) = listener.accept()?;
    let mut buffer = vec![0; MIB as usize];
    let (started, mut bytes) = (Instant::now(), 0);
    loop {
        match socket.read(&mut buffer)? {
            0 => break,
            count => bytes += count,
        }
    }
    println!("{}", bytes as f64 / started.elapsed().as_secs_f64());
    Ok(())
}

/// Sends `bytes` to [`run_stream_receiver`].
pub fn send_stream(address: &str, bytes: u64) -> Outcome<()> {
    let mut socket = TcpStream::connect(address)?;
    let buffer = vec![1; MIB as usize];
    for _ in 0..bytes / MIB {
        socket.write_all(&buffer)?;
    }
    Ok(())
}
