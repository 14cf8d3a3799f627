//! Calls to the service.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use forebay_net::job_socket::call_with_descriptor;
use parking_lot::Mutex;

use crate::code::Code;
use crate::configuration::{self, Sockets};
use crate::message::{Call, Reply};

/// The sockets of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// For all users.
    Global,
    /// For administrators.
    Control,
}

static SOCKETS: Mutex<Option<Sockets>> = Mutex::new(None);

/// Reads the configuration file again at the next call.
pub fn forget_configuration() {
    *SOCKETS.lock() = None;
}

fn path_of(socket: Socket) -> Result<PathBuf, Code> {
    let mut known = SOCKETS.lock();
    let sockets = match &mut *known {
        Some(sockets) => sockets,
        none => none.insert(
            configuration::read_sockets(&configuration::selected_file())
                .map_err(|_| Code::CONNFAILED)?,
        ),
    };
    Ok(match socket {
        Socket::Global => sockets.global.clone(),
        Socket::Control => sockets.control.clone(),
    })
}

/// Sends a call to the service that the configuration file names, with the descriptor of a memory
/// region if there is one.
///
/// # Errors
/// `CONNFAILED` if there is no service or the socket is not accessible, the code of a refusal, or
/// `RPCRECVFAILED`.
pub fn call(socket: Socket, call: &Call, region: Option<BorrowedFd<'_>>) -> Result<Reply, Code> {
    match send(&path_of(socket)?, call, region)? {
        Reply::Refused(code, _) => Err(code),
        reply => Ok(reply),
    }
}

/// As [`call`], to the service at this socket; a refusal is a reply.
pub fn send(socket: &Path, call: &Call, region: Option<BorrowedFd<'_>>) -> Result<Reply, Code> {
    call_with_descriptor(socket, call, region).map_err(|error| connection_code(&error))
}

fn connection_code(error: &io::Error) -> Code {
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::PermissionDenied => Code::CONNFAILED,
        io::ErrorKind::BrokenPipe | io::ErrorKind::InvalidInput => Code::RPCSENDFAILED,
        _ => Code::RPCRECVFAILED,
    }
}
