//! Copying the metadata of a file or directory.

use rustix::io::Errno;

use crate::end::{FileStat, Metadata, is_xattr_kept};
use crate::error::{Failure, describe};

/// Gives `target` the owner, extended attributes, permissions and times of `source`. Returns what
/// could not be preserved.
pub(crate) fn copy_metadata<S: Metadata + ?Sized, T: Metadata + ?Sized>(
    source: &S,
    stat: &FileStat,
    target: &T,
) -> Result<Option<String>, Failure> {
    match target.set_metadata(stat, &mut || copy_xattrs(source, target)) {
        Ok(preserved) => Ok(preserved.err()),
        Err(errno) => {
            Err(Failure::target("setting owner, permissions and times of its copy", errno))
        }
    }
}

/// Copies extended attributes of users and access control lists.
fn copy_xattrs<S: Metadata + ?Sized, T: Metadata + ?Sized>(
    source: &S,
    target: &T,
) -> Result<(), String> {
    let names = match source.list_xattr() {
        Ok(names) => names,
        // The file system of the source has none.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        Err(errno) => {
            return Err(format!("cannot list its extended attributes: {}", describe(errno)));
        }
    };
    for name in names.iter().filter(|name| is_xattr_kept(name)) {
        let failed = |action: &str, errno| {
            let name = String::from_utf8_lossy(name);
            format!("cannot {action} {name}: {}", describe(errno))
        };
        let value = source.get_xattr(name).map_err(|e| failed("read its attribute", e))?;
        target.set_xattr(name, &value).map_err(|e| failed("preserve its attribute", e))?;
    }
    Ok(())
}
