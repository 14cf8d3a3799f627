//! Hints in objects of type `MPI_Info`.

use super::{Handle, functions, library};
use std::ffi::CString;

/// Longest value that is read.
const LONGEST: usize = 1023;

/// The value of a hint, without white space around it.
pub fn get(info: Handle, key: &str) -> Option<String> {
    let library = library();
    if library.flavour.exact(info) == library.info_null {
        return None;
    }
    let key = CString::new(key).ok()?;
    let mut value = vec![0u8; LONGEST + 1];
    let mut found = 0;
    // SAFETY: the key is a C string, and the value has room for the length and a NUL.
    let code = unsafe {
        functions::info_get(
            info,
            key.as_ptr(),
            LONGEST as i32,
            value.as_mut_ptr().cast(),
            &mut found,
        )
    };
    if code != super::SUCCESS || found == 0 {
        return None;
    }
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(LONGEST);
    value.truncate(end);
    String::from_utf8(value).ok().map(|value| value.trim().to_string())
}

/// Sets a hint. A hint that cannot be set is only missing in what the program reads back.
pub fn set(info: Handle, key: &str, value: &str) {
    if let (Ok(key), Ok(value)) = (CString::new(key), CString::new(value)) {
        // SAFETY: both are C strings, and the object belongs to the caller.
        unsafe { functions::info_set(info, key.as_ptr(), value.as_ptr()) };
    }
}
