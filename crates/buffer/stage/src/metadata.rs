//! Copying the metadata of a file or directory.

use forebay_protocol::acl::mode_without_list;
use forebay_protocol::message::ACCESS_ACL;
use rustix::io::Errno;

use crate::end::{FileStat, Metadata, is_xattr_kept};
use crate::error::{Failure, describe};

/// Permission bits of groups and all others.
const OTHER_USERS: u32 = 0o077;

/// Gives `target` the owner, extended attributes, permissions and times of `source`. Returns what
/// could not be preserved. Nobody gets permissions that he does not have at the source.
pub(crate) fn copy_metadata<S: Metadata + ?Sized, T: Metadata + ?Sized>(
    source: &S,
    stat: &FileStat,
    target: &T,
) -> Result<Option<String>, Failure> {
    let mut lost = None;
    let set = target.set_metadata(stat, &mut |mode| copy_xattrs(source, target, mode, &mut lost));
    match set {
        Ok(()) => Ok(lost),
        Err(errno) => {
            Err(Failure::target("setting owner, permissions and times of its copy", errno))
        }
    }
}

/// Copies extended attributes of users and access control lists. The first one that could not be preserved
/// is added to `lost`. Returns the permission bits of the copy of a source with `mode`.
fn copy_xattrs<S: Metadata + ?Sized, T: Metadata + ?Sized>(
    source: &S,
    target: &T,
    mode: u32,
    lost: &mut Option<String>,
) -> u32 {
    let names = match source.list_xattr() {
        Ok(names) => names,
        // The file system of the source has none.
        Err(Errno::NOTSUP | Errno::NOSYS) => return mode,
        Err(errno) => {
            *lost = Some(format!("cannot list its extended attributes: {}", describe(errno)));
            return mode & !OTHER_USERS;
        }
    };
    let mut permitted = mode;
    for name in names.iter().filter(|name| is_xattr_kept(name)) {
        let failed = |action: &str, errno| {
            let name = String::from_utf8_lossy(name);
            format!("cannot {action} {name}: {}", describe(errno))
        };
        let (failure, without) = match source.get_xattr(name) {
            Ok(value) => match target.set_xattr(name, &value) {
                Ok(()) => continue,
                Err(errno) => {
                    (failed("preserve its attribute", errno), mode_without_list(&value, mode))
                }
            },
            Err(errno) => (failed("read its attribute", errno), mode & !OTHER_USERS),
        };
        if name == ACCESS_ACL {
            permitted = without;
        }
        lost.get_or_insert(failure);
    }
    permitted
}
