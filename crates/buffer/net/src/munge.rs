//! MUNGE credentials: a user's identity, signed by the `munged` daemons of a cluster's hosts, which
//! share a key.
//!
//! `libmunge.so.2` is loaded at its first use, so that programs can be built and run without it.
//! Functions and constants are those of `munge.h` of MUNGE 0.5.

use libloading::Library;
use std::ffi::OsStr;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Longest accepted credential, in bytes.
pub const MAX_CREDENTIAL_BYTES: usize = 16 * 1024;
/// `MUNGE_OPT_ADDR4`.
const OPTION_ADDRESS: c_int = 5;
/// `MUNGE_OPT_SOCKET`.
const OPTION_SOCKET: c_int = 8;

/// `EMUNGE_NO_MEMORY`, `EMUNGE_SOCKET` and `EMUNGE_TIMEOUT`: `munged` did not reply.
const UNAVAILABLE: [c_int; 3] = [5, 6, 7];
/// `EMUNGE_CRED_EXPIRED` and `EMUNGE_CRED_REWOUND`: the credential is not of this time.
const WRONG_TIME: [c_int; 2] = [15, 16];

/// A failure to make or to verify a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MungeError {
    reason: String,
    /// Whether `munged` is not running or busy.
    is_temporary: bool,
}

impl MungeError {
    fn permanent(reason: impl Into<String>) -> MungeError {
        MungeError { reason: reason.into(), is_temporary: false }
    }

    /// The error of a call that returned `code`, with the library's description.
    fn of_code(code: c_int, text: &str) -> MungeError {
        let reason = match WRONG_TIME.contains(&code) {
            true => format!("{text}: the clocks of the two hosts differ by minutes, or more"),
            false => text.to_owned(),
        };
        MungeError { reason, is_temporary: UNAVAILABLE.contains(&code) }
    }

    /// Whether another attempt can succeed: `munged` did not reply, because it is being restarted, for
    /// example.
    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }
}

impl fmt::Display for MungeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MUNGE: {}", self.reason)
    }
}

impl std::error::Error for MungeError {}

/// The contents of a valid credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedCredential {
    /// Effective user of its process.
    pub uid: u32,
    /// Effective group of its process.
    pub gid: u32,
    /// Address of its host, according to the host's `munged`.
    pub origin: Ipv4Addr,
    /// Payload.
    pub payload: Vec<u8>,
}

/// The `munged` of this host.
#[derive(Clone, Debug)]
pub struct Munge {
    socket: Option<CString>,
}

type Context = *mut c_void;
type Encode = unsafe extern "C" fn(*mut *mut c_char, Context, *const c_void, c_int) -> c_int;
type Decode = unsafe extern "C" fn(
    *const c_char,
    Context,
    *mut *mut c_void,
    *mut c_int,
    *mut libc::uid_t,
    *mut libc::gid_t,
) -> c_int;

/// The functions of the library, which stays loaded.
struct Functions {
    encode: Encode,
    decode: Decode,
    create: unsafe extern "C" fn() -> Context,
    destroy: unsafe extern "C" fn(Context),
    set: unsafe extern "C" fn(Context, c_int, ...) -> c_int,
    get: unsafe extern "C" fn(Context, c_int, ...) -> c_int,
    describe: unsafe extern "C" fn(Context) -> *const c_char,
    name: unsafe extern "C" fn(c_int) -> *const c_char,
    _library: Library,
}

fn load() -> Result<Functions, libloading::Error> {
    // SAFETY: libmunge has no initialisers with requirements; the symbols have the types declared in
    // munge.h, and the library stays loaded as long as the pointers to it.
    unsafe {
        let library = Library::new("libmunge.so.2")?;
        Ok(Functions {
            encode: *library.get(b"munge_encode\0")?,
            decode: *library.get(b"munge_decode\0")?,
            create: *library.get(b"munge_ctx_create\0")?,
            destroy: *library.get(b"munge_ctx_destroy\0")?,
            set: *library.get(b"munge_ctx_set\0")?,
            get: *library.get(b"munge_ctx_get\0")?,
            describe: *library.get(b"munge_ctx_strerror\0")?,
            name: *library.get(b"munge_strerror\0")?,
            _library: library,
        })
    }
}

fn functions() -> Result<&'static Functions, MungeError> {
    static LOADED: OnceLock<Result<Functions, MungeError>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        load().map_err(|error| {
            MungeError::permanent(format!(
                "{error}; install MUNGE (Debian: libmunge2 and munge), or use the pool's key"
            ))
        })
    });
    loaded.as_ref().map_err(Clone::clone)
}

/// A context of the library, for one call.
struct Call {
    functions: &'static Functions,
    context: Context,
}

impl Drop for Call {
    fn drop(&mut self) {
        // SAFETY: made by `munge_ctx_create`, and not destroyed before.
        unsafe { (self.functions.destroy)(self.context) }
    }
}

impl Call {
    fn begin(munge: &Munge) -> Result<Call, MungeError> {
        let functions = functions()?;
        // SAFETY: has no arguments.
        let context = unsafe { (functions.create)() };
        if context.is_null() {
            return Err(MungeError::permanent("out of memory".to_owned()));
        }
        let call = Call { functions, context };
        if let Some(socket) = &munge.socket {
            // SAFETY: the option's value is a string, which the library copies.
            let code = unsafe { (functions.set)(context, OPTION_SOCKET, socket.as_ptr()) };
            call.check(code)?;
        }
        Ok(call)
    }

    fn check(&self, code: c_int) -> Result<(), MungeError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the context is valid; both functions return null or a string that is valid until
        // the next use of the context.
        let text = unsafe {
            let mut text = (self.functions.describe)(self.context);
            if text.is_null() {
                text = (self.functions.name)(code);
            }
            if text.is_null() {
                return Err(MungeError::of_code(code, &format!("error {code}")));
            }
            CStr::from_ptr(text).to_string_lossy().into_owned()
        };
        Err(MungeError::of_code(code, &text))
    }
}

/// Memory allocated by the library.
struct Allocated(*mut c_void);

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: from the library's `malloc`, or null, and freed once.
        unsafe { libc::free(self.0) }
    }
}

impl Munge {
    /// The `munged` that listens at `socket`, or at its default socket. Fails if MUNGE is not
    /// installed.
    pub fn new(socket: Option<PathBuf>) -> Result<Munge, MungeError> {
        functions()?;
        let socket = match socket {
            None => None,
            Some(path) => Some(CString::new(path.as_os_str().as_bytes()).map_err(|_| {
                MungeError::permanent("the path of munged's socket contains a NUL byte".to_owned())
            })?),
        };
        Ok(Munge { socket })
    }

    /// The socket of `munged`, if it is not the default one.
    pub fn socket(&self) -> Option<PathBuf> {
        let path = self.socket.as_ref()?;
        Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
    }

    /// Makes a credential of this process with this payload.
    pub fn encode(&self, payload: &[u8]) -> Result<Vec<u8>, MungeError> {
        let call = Call::begin(self)?;
        let length = c_int::try_from(payload.len())
            .map_err(|_| MungeError::permanent("the payload is too long".to_owned()))?;
        let mut text: *mut c_char = std::ptr::null_mut();
        // SAFETY: `payload` has `length` bytes; `text` receives a string allocated by the library.
        let code = unsafe {
            (call.functions.encode)(&mut text, call.context, payload.as_ptr().cast(), length)
        };
        let _owned = Allocated(text.cast());
        call.check(code)?;
        if text.is_null() {
            return Err(MungeError::permanent("munge_encode returned nothing".to_owned()));
        }
        // SAFETY: on success it is a string that ends with NUL.
        Ok(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
    }

    /// Verifies a credential. It is valid once on a host, and for some minutes.
    pub fn decode(&self, credential: &[u8]) -> Result<DecodedCredential, MungeError> {
        if credential.len() > MAX_CREDENTIAL_BYTES {
            return Err(MungeError::permanent("the credential is too long".to_owned()));
        }
        let text = CString::new(credential)
            .map_err(|_| MungeError::permanent("the credential contains a NUL byte".to_owned()))?;
        let call = Call::begin(self)?;
        let mut payload: *mut c_void = std::ptr::null_mut();
        let mut length: c_int = 0;
        let (mut uid, mut gid) = (libc::uid_t::MAX, libc::gid_t::MAX);
        // SAFETY: `text` ends with NUL; the others have the types of munge.h; `payload` receives memory
        // allocated by the library.
        let code = unsafe {
            (call.functions.decode)(
                text.as_ptr(),
                call.context,
                &mut payload,
                &mut length,
                &mut uid,
                &mut gid,
            )
        };
        let owned = Allocated(payload);
        call.check(code)?;
        let length = usize::try_from(length).unwrap_or(0);
        let payload = if owned.0.is_null() || length == 0 {
            Vec::new()
        } else {
            // SAFETY: on success it is `length` bytes long.
            unsafe { std::slice::from_raw_parts(owned.0.cast::<u8>(), length) }.to_vec()
        };
        let mut origin = libc::in_addr { s_addr: 0 };
        // SAFETY: the option's value is a pointer to an `in_addr`, which the library fills in.
        let code = unsafe { (call.functions.get)(call.context, OPTION_ADDRESS, &raw mut origin) };
        call.check(code)?;
        Ok(DecodedCredential {
            uid,
            gid,
            origin: Ipv4Addr::from(u32::from_be(origin.s_addr)),
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_that_does_not_reply_is_temporary_and_wrong_times_name_the_clocks() {
        let temporary: Vec<c_int> =
            (1..20).filter(|code| MungeError::of_code(*code, "x").is_temporary()).collect();
        assert_eq!(temporary, UNAVAILABLE);
        let rewound = MungeError::of_code(16, "Rewound credential").to_string();
        assert!(rewound.contains("Rewound credential: the clocks"), "{rewound}");
        assert_eq!(MungeError::of_code(14, "Invalid").to_string(), "MUNGE: Invalid");
    }
}
