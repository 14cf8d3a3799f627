//! The work of client processes.

use crate::Outcome;
use crate::site::{INSTANCE, Place, key};
use forebay_client::{ClientOptions, Fs};
use forebay_protocol::message::{NewInode, OpenMode};
use forebay_protocol::{Errno, FileKind, Ino};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub const MIB: u64 = 1 << 20;

/// When data is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durable {
    Never,
    AtTheEnd,
    EachWrite,
}

/// Something to do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    Create(u64),
    Stat(u64),
    Unlink(u64),
    Write {
        size: u64,
        count: u64,
        /// All clients write one file, taking turns with its blocks.
        shared: bool,
        /// The file is new.
        fresh: bool,
        durable: Durable,
    },
    Read {
        size: u64,
        count: u64,
        shared: bool,
    },
}

/// A task of one client.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub place: Place,
    pub task: Task,
    pub dir: PathBuf,
    pub me: u64,
    pub clients: u64,
}

/// A client process: read the order, get ready, wait for the word, say how many seconds it took.
pub fn client() -> Outcome<()> {
    let mut lines = std::io::stdin().lines();
    let mut next = || lines.next().unwrap_or(Ok(String::new()));
    let order: Order = serde_json::from_str(&next()?)?;
    let act = prepare(&order)?;
    println!("ready");
    next()?;
    let begun = Instant::now();
    act()?;
    println!("{}", begun.elapsed().as_secs_f64());
    Ok(())
}

type Act = Box<dyn FnOnce() -> Outcome<()>>;

fn prepare(order: &Order) -> Outcome<Act> {
    let directory = format!("{:?}{}", order.place, order.me);
    let names = move |count: u64| (0..count).map(move |i| format!("file{i}"));
    let path = match order.place {
        Place::Base => Some(order.dir.join("base")),
        Place::Mount => Some(order.dir.join("mnt")),
        Place::Gluster => Some(order.dir.join("gluster")),
        _ => None,
    };
    match (order.task, path) {
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
            let attached = attach(order)?;
            let made = attached.mkdir(Ino::ROOT, directory.as_bytes(), 0o755);
            let home = match made {
                Err(Errno::EEXIST) => attached.lookup(Ino::ROOT, directory.as_bytes())?,
                other => other?,
            };
            let task = order.task;
            Ok(Box::new(move || {
                let (Task::Create(count) | Task::Stat(count) | Task::Unlink(count)) = task else {
                    return Ok(());
                };
                for name in names(count) {
                    let name = name.as_bytes();
                    match task {
                        Task::Create(_) => {
                            let new = NewInode::Node(FileKind::File, 0);
                            attached.make_inode(home.ino, name, new, 0o644)?;
                        }
                        Task::Stat(_) => drop(attached.lookup(home.ino, name)?),
                        _ => attached.unlink(home.ino, name)?,
                    }
                }
                Ok(())
            }))
        }
        (Task::Write { .. } | Task::Read { .. }, path) => data(order, path),
    }
}

fn attach(order: &Order) -> Outcome<Fs> {
    let options = ClientOptions { key: Some(key()?), ..ClientOptions::default() };
    Ok(Fs::attach(order.place.nodes(&order.dir), INSTANCE, options)?)
}

/// A file of either kind.
enum Target {
    Ours(Arc<forebay_client::File>),
    Theirs(fs::File),
}

impl Target {
    fn write(&self, data: &[u8], offset: u64) -> Outcome<()> {
        match self {
            Target::Ours(file) => Ok(file.write_all_at(data, offset)?),
            Target::Theirs(file) => Ok(file.write_all_at(data, offset)?),
        }
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Outcome<()> {
        match self {
            Target::Ours(file) => match file.read_at(into, offset)? {
                count if count == into.len() => Ok(()),
                count => Err(format!("{count} bytes instead of {}", into.len()).into()),
            },
            Target::Theirs(file) => Ok(file.read_exact_at(into, offset)?),
        }
    }

    fn sync(&self, data_only: bool) -> Outcome<()> {
        match self {
            Target::Ours(file) => Ok(file.fsync(data_only)?),
            Target::Theirs(file) if data_only => Ok(file.sync_data()?),
            Target::Theirs(file) => Ok(file.sync_all()?),
        }
    }
}

fn data(order: &Order, path: Option<PathBuf>) -> Outcome<Act> {
    let (me, clients) = (order.me, order.clients);
    let (Task::Write { size, shared, .. } | Task::Read { size, shared, .. }) = order.task else {
        return Err("not about data".into());
    };
    let name = if shared { "shared".to_owned() } else { format!("data{me}") };
    let fresh = matches!(order.task, Task::Write { fresh: true, .. });
    let target = match path {
        Some(path) => Target::Theirs(open(&path.join(name), fresh)?),
        None => {
            let attached = attach(order)?;
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
                descriptor: order.place.is_local(),
            };
            let opened = attached.create(Ino::ROOT, name.as_bytes(), 0o644, false, mode)?;
            Target::Ours(opened.file)
        }
    };
    let offset = move |i: u64| size * if shared { i * clients + me } else { i };
    let mut buffer = vec![me as u8 + 1; size as usize];
    Ok(match order.task {
        Task::Write { count, durable, .. } => Box::new(move || {
            for i in 0..count {
                target.write(&buffer, offset(i))?;
                if durable == Durable::EachWrite {
                    target.sync(true)?;
                }
            }
            match durable {
                Durable::AtTheEnd => target.sync(false),
                _ => Ok(()),
            }
        }),
        Task::Read { count, .. } => Box::new(move || {
            for i in 0..count {
                target.read(&mut buffer, offset(i))?;
            }
            Ok(())
        }),
        _ => return Err("not about data".into()),
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

/// What one TCP connection over loopback carries, in bytes a second: this process receives what
/// another one sends, for a second.
pub fn stream() -> Outcome<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?);
    let (mut socket, _) = listener.accept()?;
    let mut buffer = vec![0; MIB as usize];
    let (begun, mut bytes) = (Instant::now(), 0);
    loop {
        match socket.read(&mut buffer)? {
            0 => break,
            count => bytes += count,
        }
    }
    println!("{}", bytes as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

/// Send that much to [`stream`].
pub fn send(address: &str, bytes: u64) -> Outcome<()> {
    let mut socket = TcpStream::connect(address)?;
    let buffer = vec![1; MIB as usize];
    for _ in 0..bytes / MIB {
        socket.write_all(&buffer)?;
    }
    Ok(())
}
