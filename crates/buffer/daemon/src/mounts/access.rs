//! Attaching instances, and the directories that each has.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use forebay_client::Fs;
use forebay_job_script::AccessMode;
use forebay_protocol::Credentials;
use forebay_protocol::address::Address;
use forebay_protocol::{Errno, Ino};

use forebay_control::messages::{InstanceId, Owner};

/// How long at most to wait for the daemon of a copy that does not answer: there are others.
const COPY_PATIENCE: Duration = Duration::from_secs(10);

/// How this process reaches storage daemons.
#[derive(Clone, Debug)]
pub struct StorageAccess {
    /// The daemon on this host, if there is one: its address as other hosts write it, and the
    /// Unix socket through which it is reached faster.
    pub own: Option<(String, Address)>,
    /// Who we are, and how long calls wait for a daemon.
    pub options: forebay_client::ClientOptions,
}

impl StorageAccess {
    /// Where an instance's daemons are, in their order; none are listed if the only one is our
    /// own.
    fn addresses(&self, listed: &[String]) -> Result<Vec<Address>, String> {
        if listed.is_empty() {
            let own = self.own.as_ref().map(|(_, address)| address.clone());
            return Ok(own.into_iter().collect());
        }
        let one = |text: &String| match &self.own {
            Some((known, local)) if known == text => Ok(local.clone()),
            _ => text
                .parse()
                .map_err(|_| format!("`{text}` is no address of a storage daemon")),
        };
        listed.iter().map(one).collect()
    }

    pub(super) fn attach(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        listed: &[String],
    ) -> Result<Fs, String> {
        let addresses = self.addresses(listed)?;
        if addresses.is_empty() {
            return Err("no storage daemon has it".to_owned());
        }
        let id = forebay_protocol::InstanceId(instance.0);
        let mut options = self.options.clone();
        if mode == AccessMode::LoadBalanced {
            options.timeout = options.timeout.min(COPY_PATIENCE);
        }
        Fs::attach(addresses, id, options).map_err(|errno| {
            let reason = match errno {
                Errno::ENOKEY => "what listens at a storage node's address has not proved that it \
                                  is one of the pool's daemons; the log says at which"
                    .to_owned(),
                other => other.to_string(),
            };
            format!("the instance cannot be attached: {reason}")
        })
    }
}

/// Makes the directory of an access mode for the instance's owner, with the permissions of the
/// instance; one that is there already stays as it is. It has its owner from the beginning, so that
/// nothing is left half done.
pub(super) fn make_mode_directory(attached: &Fs, space: &Path, owner: Owner) -> Result<(), Errno> {
    let mut parent = Ino::ROOT;
    for above in space.parent().into_iter().flat_map(Path::iter) {
        let name = above.as_bytes();
        parent = match attached.lookup(parent, name) {
            Err(Errno::ENOENT) => match attached.mkdir(parent, name, 0o755) {
                Err(Errno::EEXIST) => attached.lookup(parent, name)?.ino, // By another host.
                made => made?.ino,
            },
            found => found?.ino,
        };
    }
    let name = space.file_name().ok_or(Errno::EINVAL)?.as_bytes();
    match attached.lookup(parent, name) {
        Err(Errno::ENOENT) => {}
        found => return found.map(|_| ()),
    }
    let mode = attached.get_attr(Ino::ROOT)?.mode;
    let own = rustix::process::geteuid().as_raw() == owner.uid
        && rustix::process::getegid().as_raw() == owner.gid;
    // Nobody else gets as far as this in an instance of our own user: it is a directory as any.
    let mode = if own && mode & 0o007 == 0 {
        0o755
    } else {
        mode
    };
    let (uid, gid) = (owner.uid, owner.gid);
    // The owner may make nothing in a directory that is root's, and need not.
    let checked = true;
    let owners = attached.on_behalf_of(Credentials {
        uid,
        gid,
        groups: Some(Vec::new()),
        checked,
    });
    match owners.mkdir(parent, name, mode) {
        Err(Errno::EEXIST) => Ok(()),
        made => made.map(|_| ()),
    }
}
