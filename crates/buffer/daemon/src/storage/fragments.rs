//! Fragments of instances on a storage daemon.

use forebay_client::Admin;
use forebay_control::messages::FragmentPlan;
use forebay_protocol::Errno;
use forebay_protocol::message::InstanceSpec;

/// Creates a fragment on a storage daemon, unless it exists.
pub fn create_fragment(admin: &Admin, plan: &FragmentPlan) -> Result<(), String> {
    let _span = tracing::error_span!("instance", instance = %plan.instance).entered();
    // As in DataWarp, a limit holds for each name space, and every node has one.
    let inodes = plan.max_files.unwrap_or((plan.capacity.0 / 4096).max(100_000));
    let spec = InstanceSpec {
        id: plan.instance,
        uid: plan.owner.uid,
        gid: plan.owner.gid,
        mode: u16::try_from(plan.root_permissions & 0o7777).unwrap_or(0o770),
        capacity: plan.capacity.0,
        // The root and the directories of the access modes are not the user's files.
        inodes: inodes.saturating_add(4),
        placement: plan.place.clone(),
    };
    match admin.create_instance(spec) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(format!("the storage daemon cannot create it: {errno}")),
    }
}

/// Destroys a fragment on a storage daemon, if it exists.
pub fn destroy_fragment(admin: &Admin, plan: &FragmentPlan) -> Result<(), String> {
    let _span = tracing::error_span!("instance", instance = %plan.instance).entered();
    // Forced: clients that still have its files open lose them.
    match admin.remove_instance(plan.instance, true) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(format!("the storage daemon cannot remove it: {errno}")),
    }
}
