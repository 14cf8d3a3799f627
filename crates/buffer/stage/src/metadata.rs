//! What a copy keeps besides the contents.

use rustix::io::Errno;

use crate::end::{FileStat, Metadata, is_kept};
use crate::error::{Failure, describe};

/// Gives `target` what `source` has: owner, extended attributes, permissions, times. Returns what
/// could not be kept.
pub(crate) fn apply<S: Metadata + ?Sized, T: Metadata + ?Sized>(
    source: &S,
    state: &FileStat,
    target: &T,
) -> Result<Option<String>, Failure> {
    let taken = target.set_metadata(state, &mut || extended(source, target));
    match taken {
        Ok(kept) => Ok(kept.err()),
        Err(errno) => Err(Failure::target(
            "setting its owner, permissions and times",
            errno,
        )),
    }
}

/// Copies extended attributes of users and access control lists.
fn extended<S: Metadata + ?Sized, T: Metadata + ?Sized>(
    source: &S,
    target: &T,
) -> Result<(), String> {
    let names = match source.attribute_names() {
        Ok(names) => names,
        // The source has none.
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        Err(errno) => {
            return Err(format!(
                "its extended attributes cannot be listed: {}",
                describe(errno)
            ));
        }
    };
    for name in names {
        if !is_kept(&name) {
            continue;
        }
        let told = |what: &str, errno| {
            let shown = String::from_utf8_lossy(&name);
            format!(
                "its attribute {shown} cannot be {what}: {}",
                describe(errno)
            )
        };
        let value = source.attribute(&name).map_err(|e| told("read", e))?;
        target
            .set_attribute(&name, &value)
            .map_err(|e| told("kept there", e))?;
    }
    Ok(())
}
