//! Scrubbing a storage node: its data at rest are compared with their checksums.

use forebay_client::{Admin, ClientOptions};
use forebay_protocol::InstanceId;
use forebay_protocol::address::Address;
use forebay_protocol::message::ScrubReport;
use forebay_store::daemon::{self, Daemon};
use forebay_store::offline::flash_directory;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Scrubs all instances on the storage node in `directory`, which is that of a storage daemon, of an
/// embedded pool, or of `mount.forebay`. A running daemon does it; if there is none, one is started.
///
/// # Errors
/// The directory is not that of a storage node, or its data cannot be read.
pub fn scrub_directory(directory: &Path) -> Result<Vec<(InstanceId, ScrubReport)>, String> {
    let flash = flash_directory(directory)?;
    let sockets = [directory.join("socket"), flash.join("socket")];
    let listens = |socket: &PathBuf| UnixStream::connect(socket).is_ok();
    if let Some(socket) = sockets.into_iter().find(listens) {
        return ask(Address::Unix(socket));
    }
    let daemon = Daemon::start(daemon::StoreOptions::new(flash)).map_err(|e| e.to_string())?;
    let found = ask(daemon.address());
    daemon.stop().map_err(|error| format!("the storage daemon: {error}"))?;
    found
}

fn ask(address: Address) -> Result<Vec<(InstanceId, ScrubReport)>, String> {
    let admin = Admin::connect(address, ClientOptions::default())
        .map_err(|errno| format!("the storage daemon: {errno}"))?;
    let usages = admin
        .instances()
        .map_err(|errno| format!("the storage daemon does not list its instances: {errno}"))?;
    let scrubbed = usages.into_iter().map(|usage| {
        let id = usage.spec.id;
        match admin.scrub(id) {
            Ok(found) => Ok((id, found)),
            Err(errno) => Err(format!("instance {id}: its data cannot be read: {errno}")),
        }
    });
    scrubbed.collect()
}
