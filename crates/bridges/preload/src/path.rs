//! Paths as programs write them.

use std::ffi::{CStr, c_char};

/// The longest path that the kernel accepts, with its NUL.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// The bytes of a path; `None` for a null pointer.
///
/// # Safety
/// `path` is null or a C string that lives as long as the result is used.
pub unsafe fn bytes<'a>(path: *const c_char) -> Option<&'a [u8]> {
    if path.is_null() {
        return None;
    }
    // SAFETY: see above.
    Some(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// The absolute form of `path`, which is relative to `directory`, without empty and `.` components.
/// `None` for those that the kernel has to resolve: with `..`, with a final `/` or `.`, empty or too
/// long.
pub fn absolute(path: &[u8], directory: impl FnOnce() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    if path.is_empty() || path.len() >= PATH_MAX || path.ends_with(b"/") || path.ends_with(b"/.") {
        return None;
    }
    if path == b"." {
        return None;
    }
    let mut result =
        if path.starts_with(b"/") { Vec::with_capacity(path.len()) } else { directory()? };
    while result.ends_with(b"/") {
        result.pop();
    }
    for component in path.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return None,
            name => {
                result.push(b'/');
                result.extend_from_slice(name);
            }
        }
    }
    (result.len() < PATH_MAX).then_some(result)
}

/// The part of `path` below the directory `prefix`; `None` if it is not below it.
pub fn below<'p>(path: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(prefix)?;
    if prefix == b"/" {
        return Some(rest).filter(|rest| !rest.is_empty());
    }
    rest.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

/// The directory and the name of a relative path.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_home(path: &[u8]) -> Option<Vec<u8>> {
        absolute(path, || Some(b"/home/u".to_vec()))
    }

    #[test]
    fn paths_become_absolute_without_empty_components() {
        assert_eq!(from_home(b"a//b/./c").unwrap(), b"/home/u/a/b/c");
        assert_eq!(from_home(b"//mnt///job/f").unwrap(), b"/mnt/job/f");
        assert_eq!(absolute(b"f", || Some(b"/".to_vec())).unwrap(), b"/f");
    }

    #[test]
    fn paths_that_only_the_kernel_resolves_are_left_to_it() {
        for path in [&b""[..], b".", b"a/", b"a/.", b"a/../b", b"..", &[b'a'; 5000]] {
            assert_eq!(from_home(path), None, "{path:?}");
        }
    }

    #[test]
    fn a_path_is_below_whole_components_only() {
        assert_eq!(below(b"/mnt/job/a/b", b"/mnt/job"), Some(&b"a/b"[..]));
        assert_eq!(below(b"/mnt/job2/a", b"/mnt/job"), None);
        assert_eq!(below(b"/mnt/job", b"/mnt/job"), None);
        assert_eq!(below(b"/a", b"/"), Some(&b"a"[..]));
        assert_eq!(split(b"a/b/c"), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(split(b"c"), (&b""[..], &b"c"[..]));
    }
}
