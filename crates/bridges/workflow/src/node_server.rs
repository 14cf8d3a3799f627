//! The server of a node: it removes and shares data, and reads them for other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use forebay_net::auth::Authenticator;
use forebay_net::listener::Listener;
use forebay_stage::Identity;
use forebay_stage::end::{DirHandle, FileHandle, FileSystem, LocalFileSystem, Metadata};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::acl;
use crate::channel::{self, Incoming};
use crate::config::SiteConfig;
use crate::directories::{self, Account, node_spaces};
use crate::job::NodeJob;
use crate::node_calls::{Access, MAX_READ, NodeReply, NodeRequest};

/// Maximum number of files and directories that a connection has open.
const MAX_OPEN: usize = 4096;

/// Open files and directories of a connection.
#[derive(Default)]
struct Opened {
    next: u64,
    open: BTreeMap<u64, Handle>,
}

enum Handle {
    Dir(Box<dyn DirHandle>),
    File(Box<dyn FileHandle>),
}

impl Handle {
    fn metadata(&self) -> &dyn Metadata {
        match self {
            Handle::Dir(dir) => &**dir,
            Handle::File(file) => &**file,
        }
    }

    fn dir(&self) -> Result<&dyn DirHandle, Errno> {
        match self {
            Handle::Dir(dir) => Ok(&**dir),
            Handle::File(_) => Err(Errno::NOTDIR),
        }
    }

    fn file(&self) -> Result<&dyn FileHandle, Errno> {
        match self {
            Handle::File(file) => Ok(&**file),
            Handle::Dir(_) => Err(Errno::ISDIR),
        }
    }
}

impl Opened {
    fn add(&mut self, handle: Handle) -> Result<NodeReply, Errno> {
        if self.open.len() == MAX_OPEN {
            return Err(Errno::MFILE);
        }
        self.next += 1;
        self.open.insert(self.next, handle);
        Ok(NodeReply::Handle(self.next))
    }

    /// Carries out an access; bytes of a file are put into `payload`.
    fn access(
        &mut self,
        number: u64,
        access: Access,
        payload: &mut Vec<u8>,
    ) -> Result<NodeReply, Errno> {
        let handle = self.open.get(&number).ok_or(Errno::BADF)?;
        let opened = match access {
            Access::Close => {
                self.open.remove(&number);
                return Ok(NodeReply::Done);
            }
            Access::OpenDir(name) => Handle::Dir(handle.dir()?.open_dir(component(&name)?)?),
            Access::OpenFile(name) => Handle::File(handle.dir()?.open(component(&name)?, None)?),
            Access::Clone => Handle::Dir(handle.dir()?.try_clone()?),
            other => return read(handle, other, payload),
        };
        self.add(opened)
    }
}

/// A name that is one component of a path.
fn component(name: &[u8]) -> Result<&OsStr, Errno> {
    let is_component = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    if is_component { Ok(OsStr::from_bytes(name)) } else { Err(Errno::INVAL) }
}

/// Accesses that open and close nothing.
fn read(handle: &Handle, access: Access, payload: &mut Vec<u8>) -> Result<NodeReply, Errno> {
    Ok(match access {
        Access::Stat => NodeReply::Stat(handle.metadata().stat()?.into()),
        Access::ListXattr => NodeReply::List(handle.metadata().list_xattr()?),
        Access::GetXattr(name) => NodeReply::Bytes(handle.metadata().get_xattr(&name)?),
        Access::ReadDir => {
            let mut entries = Vec::new();
            handle.dir()?.read_dir(&mut |name, found| {
                let found = found.map(Into::into).map_err(Errno::raw_os_error);
                entries.push((name.as_bytes().to_vec(), found));
                true
            })?;
            NodeReply::Entries(entries)
        }
        Access::Lstat(name) => NodeReply::Stat(handle.dir()?.lstat(component(&name)?)?.into()),
        Access::Readlink(name) => {
            let name = component(&name)?;
            let seen = handle.dir()?.lstat(name)?;
            NodeReply::Bytes(handle.dir()?.readlink(name, &seen)?.as_bytes().to_vec())
        }
        Access::Device => NodeReply::Number(handle.dir()?.device()?),
        Access::Read { offset, length } => {
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_READ);
            payload.resize(length, 0);
            let count = handle.file()?.read_at(payload, offset)?;
            payload.truncate(count);
            NodeReply::Done
        }
        Access::Seek { offset, hole } => NodeReply::Number(handle.file()?.seek(offset, hole)?),
        Access::Close | Access::OpenDir(_) | Access::OpenFile(_) | Access::Clone => {
            return Err(Errno::INVAL);
        }
    })
}

/// This node: its configuration, and the jobs whose stage-out is repeated.
struct Node {
    config: SiteConfig,
    auth: Authenticator,
    staging_out: Mutex<BTreeSet<u32>>,
}

/// Repeats the stage-out of a job on a thread.
fn start_stage_out(here: &Arc<Node>, job: u32, node: String) -> Result<NodeReply, String> {
    if !here.staging_out.lock().insert(job) {
        return Err(format!("the stage-out of job {job} is under way"));
    }
    let thread = here.clone();
    let work = move || {
        let (config, auth) = (&thread.config, thread.auth.clone());
        if let Err(error) = (NodeJob { config, auth, job, node }).finish() {
            tracing::warn!(%error, job, "the outcome of a stage-out was not reported");
        }
        thread.staging_out.lock().remove(&job);
    };
    match std::thread::Builder::new().name("stage out".to_owned()).spawn(work) {
        Ok(_) => Ok(NodeReply::Done),
        Err(error) => {
            here.staging_out.lock().remove(&job);
            Err(error.to_string())
        }
    }
}

/// Starts to serve on all addresses of this node, until the listener is dropped.
pub fn start(config: &SiteConfig) -> Result<Listener, String> {
    let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, config.node.port));
    let auth = config.authenticator()?;
    let here = Arc::new(Node {
        config: config.clone(),
        auth: auth.clone(),
        staging_out: Mutex::default(),
    });
    let handle = move |opened: &mut Opened, request: NodeRequest, incoming: Incoming<'_>| {
        let mut payload = Vec::new();
        let reply = match incoming.peer.trusted {
            true => answer(&here, opened, request, &mut payload),
            false => Err(format!("user {} may not read for others", incoming.peer.uid)),
        };
        let failed = matches!(reply, Err(_) | Ok(NodeReply::Errno(_)));
        let payload = if failed { Vec::new() } else { payload };
        incoming.reply(&reply.unwrap_or_else(NodeReply::Failed), &payload)
    };
    channel::serve(at, auth, handle).map_err(|error| format!("{at}: {error}"))
}

fn answer(
    here: &Arc<Node>,
    opened: &mut Opened,
    request: NodeRequest,
    payload: &mut Vec<u8>,
) -> Result<NodeReply, String> {
    let failed = |error: io::Error| error.to_string();
    let config = &here.config;
    match request {
        NodeRequest::StageOut { job, node } => start_stage_out(here, job, node),
        NodeRequest::Clean { uid, gid, directories } => {
            let account = Account::find(uid, gid)?;
            let directories: Vec<u32> = directories.into_iter().collect();
            directories::remove(config, &account, &directories).map_err(failed)?;
            Ok(NodeReply::Done)
        }
        NodeRequest::Delete { uid, gid, location } => {
            let account = Account::find(uid, gid)?;
            let space = config.node_space(&location)?;
            directories::delete(space, &account, location.top_name()?).map_err(failed)?;
            Ok(NodeReply::Done)
        }
        NodeRequest::Share { uid, gid, location, principal, allow } => {
            let account = Account::find(uid, gid)?;
            let space = config.node_space(&location)?;
            let path = directories::of_persistent(space, &account).join(location.top_name()?);
            acl::set_reader_as(&account, &path, &principal, allow)?;
            Ok(NodeReply::Done)
        }
        NodeRequest::OpenRoot { uid, gid, dataspace, directory } => {
            let account = Account::find(uid, gid)?;
            let space = node_spaces(config).find(|space| space.name == dataspace);
            let space = space.ok_or_else(|| format!("there is no dataspace {dataspace}"))?;
            let root = directories::of_workflow(space, &account, directory);
            let identity = Identity::for_user(uid, gid).map_err(|error| error.to_string())?;
            let files: Arc<dyn FileSystem> =
                LocalFileSystem::open(std::slice::from_ref(&root), identity.map(Arc::new));
            Ok(as_reply(files.open_dir(&root).and_then(|dir| opened.add(Handle::Dir(dir)))))
        }
        NodeRequest::Access { handle, access } => {
            Ok(as_reply(opened.access(handle, access, payload)))
        }
    }
}

fn as_reply(outcome: Result<NodeReply, Errno>) -> NodeReply {
    outcome.unwrap_or_else(|errno| NodeReply::Errno(errno.raw_os_error()))
}
