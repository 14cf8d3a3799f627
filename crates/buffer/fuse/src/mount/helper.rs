//! Mounts by `fusermount3`, which mounts for users other than root.
//!
//! The program opens the device, mounts, and sends the device through a socket whose number is in its
//! environment.

use super::MountOptions;
use super::kernel::has_ended;
use rustix::event::Timespec;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of the program: that of libfuse 3, and that of libfuse 2.
const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];
/// Variable with the number of the socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// A mount by `fusermount3`. Dropping it unmounts.
#[derive(Debug)]
pub struct HelperMount {
    path: PathBuf,
    /// Its connection.
    device: OwnedFd,
}

impl HelperMount {
    /// Mounts at `path`. Returns the FUSE device to be served, too.
    pub fn new(path: &Path, options: &MountOptions) -> io::Result<(OwnedFd, HelperMount)> {
        let path = path.canonicalize()?;
        let mut missing = ErrorKind::NotFound.into();
        for program in PROGRAMS {
            match mount_by(program, &path, options) {
                Ok(device) => {
                    let own = device.try_clone()?;
                    return Ok((device, HelperMount { path, device: own }));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => missing = error,
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::NotFound, format!("cannot run fusermount3: {missing}")))
    }

    /// Unmounts, unless another process has done so. The path is free at once. The connection ends
    /// when the mount is no longer in use.
    pub fn unmount(&self) -> io::Result<()> {
        if has_ended(&self.device, Timespec::default())? {
            return Ok(());
        }
        let mut message = String::new();
        for program in PROGRAMS {
            let mut command = Command::new(program);
            command.args(["-u", "-q", "-z", "--"]).arg(&self.path).stdin(Stdio::null());
            match command.output() {
                Ok(output) if output.status.success() => return Ok(()),
                Ok(output) => {
                    message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    break;
                }
                Err(error) => message = error.to_string(),
            }
        }
        // Another process may have unmounted it meanwhile.
        if has_ended(&self.device, Timespec::default())? {
            return Ok(());
        }
        Err(io::Error::other(format!("fusermount3 cannot unmount: {message}")))
    }
}

impl Drop for HelperMount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(path = %self.path.display(), %error, "cannot unmount");
        }
    }
}

/// Options in the form of `fusermount3`. It takes a comma in a value for the end of that value.
fn option_list(options: &MountOptions) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,");
    let mut list =
        format!("fsname={},subtype={}", escaped(&options.source), escaped(&options.subtype));
    for (is_set, name) in [
        (options.read_only, ",ro"),
        (options.default_permissions, ",default_permissions"),
        (options.allow_other, ",allow_other"),
    ] {
        list.push_str(if is_set { name } else { "" });
    }
    list
}

/// Has `program` mount. `NotFound`: there is no such program.
fn mount_by(program: &str, path: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (socket, passed) = UnixStream::pair()?;
    let mut command = Command::new(program);
    command.arg("-o").arg(option_list(options)).arg("--").arg(path);
    command.env(SOCKET_VARIABLE, passed.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let number = passed.as_raw_fd();
    // SAFETY: only system calls are made between fork and exec. The socket is open until `spawn`
    // returns, which is after exec.
    unsafe {
        command.pre_exec(move || {
            let socket = BorrowedFd::borrow_raw(number);
            let flags = fcntl_getfd(socket)?;
            Ok(fcntl_setfd(socket, flags - FdFlags::CLOEXEC)?)
        });
    }
    let child = command.spawn()?;
    drop(passed);
    let received = receive_device(&socket);
    let output = child.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match received {
        Ok(device) => {
            tracing::debug!(program, message, "mounted");
            Ok(device)
        }
        Err(_) if !output.status.success() && message.contains("user_allow_other") => {
            Err(io::Error::new(ErrorKind::PermissionDenied, message))
        }
        Err(_) if !message.is_empty() => Err(io::Error::other(message)),
        Err(error) => Err(io::Error::other(format!("{program} sends no device: {error}"))),
    }
}

/// Receives the device.
fn receive_device(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut byte)];
        recvmsg(socket.as_fd(), &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(device);
        }
    }
    Err(ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_of_a_source_are_no_options() {
        let options = MountOptions {
            source: r"a,b\c".into(),
            subtype: "test".into(),
            read_only: true,
            ..MountOptions::default()
        };
        assert_eq!(option_list(&options), r"fsname=a\,b\\c,subtype=test,ro");
    }
}
