//! Data at rest compared with their checksums: all that lies on one storage node.

use forebay_client::{Admin, Options};
use forebay_store::daemon::{self, Daemon};
use forebay_wire::InstanceId;
use forebay_wire::message::Scrubbed;
use forebay_wire::stream::Address;
use std::path::Path;
use std::time::Duration;

/// Compares the data of every instance on the storage node in `directory`, that of a storage
/// daemon or of an embedded pool. A daemon that runs there is asked; else one is started for it.
///
/// # Errors
/// What is wrong with the directory, or why the data cannot be read.
pub fn scrub(directory: &Path) -> Result<Vec<(InstanceId, Scrubbed)>, String> {
    let flash = directory.join("flash");
    if !flash.join("objects").is_dir() {
        return Err(format!(
            "{}: there is no flash/objects in it; name the directory of a storage daemon or of an \
             embedded pool",
            directory.display()
        ));
    }
    let sockets = [directory.join("socket"), flash.join("socket")];
    let running = sockets.into_iter().find_map(|socket| {
        let options = Options {
            patience: Duration::ZERO,
            ..Options::default()
        };
        Admin::connect(Address::Unix(socket), options).ok()
    });
    if let Some(admin) = running {
        return ask(&admin);
    }
    let daemon = Daemon::start(daemon::Options::new(flash)).map_err(|e| e.to_string())?;
    let found = Admin::connect(daemon.address(), Options::default())
        .map_err(|errno| format!("the storage daemon: {errno}"))
        .and_then(|admin| ask(&admin));
    daemon
        .stop()
        .map_err(|error| format!("the storage daemon: {error}"))?;
    found
}

fn ask(admin: &Admin) -> Result<Vec<(InstanceId, Scrubbed)>, String> {
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
