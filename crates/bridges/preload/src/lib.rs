//! Interception library: `LD_PRELOAD=libforebay_preload.so program`.
//!
//! A program's calls of the C library for files below the mount of an instance use the client library
//! (`forebay_client`), in the program's process, instead of the mount. What is not intercepted, or
//! not supported here, uses the mount, with the same results.
//!
//! An open file has a descriptor of the kernel as its number (`table`): an `O_PATH` descriptor of
//! the mount's root, on which the kernel refuses reads and writes. Before a call that the kernel has
//! to carry out on the file itself (`mmap`, `fork`, locks, `sendfile`, …), the file is opened again
//! through the mount under the same number (`file::OpenFile::move_to_kernel`). From then on it is
//! an ordinary descriptor, which other processes can inherit.
//!
//! The functions are in `calls`. Each either has a result, or passes the call on to the next
//! library, usually libc (`next`).
#![warn(missing_docs)]
#![cfg_attr(test, allow(dead_code, reason = "a test program keeps the functions of the C library"))]

mod calls;
mod directories;
mod errno;
mod file;
mod fork;
mod inside;
mod mounts;
mod next;
mod path;
mod runtime;
mod stat;
mod streams;
mod table;
