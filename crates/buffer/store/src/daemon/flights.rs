//! Several reads and writes of files under way at the same time, by `io_uring` where the kernel
//! lets us, by threads otherwise.

use io_uring::{IoUring, opcode, types};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::thread::{Scope, ScopedJoinHandle};

/// Offsets, lengths and addresses of direct I/O are multiples of this; no device in use wants more.
pub const ALIGNMENT: usize = 4096;
/// Suits this offset, length or address direct I/O?
pub fn is_aligned(number: u64) -> bool {
    number.is_multiple_of(ALIGNMENT as u64)
}

/// Requests of a ring under way at a time: more than chunks in the longest request.
const ENTRIES: u32 = 32;

/// Memory that direct I/O can use.
#[derive(Debug)]
pub struct Aligned {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory as a `Box` does; nothing in it is bound to a thread.
unsafe impl Send for Aligned {}

impl Aligned {
    /// `length` zeros; at least one.
    pub fn new(length: usize) -> io::Result<Aligned> {
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT).map_err(io::Error::other)?;
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(Aligned { start, layout }),
            None => handle_alloc_error(layout),
        }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is ours, that long, and was initialized when it was allocated.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody has it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// What carries requests out.
pub enum Engine {
    /// The kernel, by a ring of this thread.
    Ring(Box<IoUring>),
    /// Threads that wait for one request each.
    Threads,
}

impl Engine {
    /// A ring if `uring` and the kernel permits, or else threads.
    pub fn new(uring: bool) -> Engine {
        match uring.then(ring) {
            Some(Ok(ring)) => Engine::Ring(Box::new(ring)),
            _ => Engine::Threads,
        }
    }

    /// Start requests and wait for them. All of them have ended when this returns.
    pub fn scope<'env, T>(
        &mut self,
        act: impl for<'scope> FnOnce(&mut Flights<'scope, 'env>) -> T,
    ) -> T {
        let ring = match self {
            Engine::Ring(ring) => ring,
            Engine::Threads => {
                return std::thread::scope(|scope| act(&mut Flights::Threads(scope, Vec::new())));
            }
        };
        let (outcome, broken) = {
            let mut flights = Flights::Ring(Flying {
                ring,
                requests: Vec::new(),
                under_way: 0,
                broken: false,
                memory: PhantomData,
            });
            let outcome = act(&mut flights);
            let broken = matches!(&flights, Flights::Ring(flying) if flying.broken);
            (outcome, broken) // dropping it waits for what nobody has waited for
        };
        if broken {
            *self = Engine::Threads;
        }
        outcome
    }
}

fn ring() -> io::Result<IoUring> {
    let ring = IoUring::new(ENTRIES)?;
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE) {
        Ok(ring)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Why there is no `io_uring` here; `Ok` if there is.
pub fn probe_ring() -> io::Result<()> {
    ring().map(drop)
}

/// What is read into or written.
#[derive(Debug)]
pub enum Memory<'env> {
    /// Read into this.
    Into(&'env mut [u8]),
    /// Write this.
    From(&'env [u8]),
}

/// A request that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(usize);

type Ended<'env> = (Memory<'env>, io::Result<usize>);

/// Requests under way.
pub enum Flights<'scope, 'env> {
    /// In a ring.
    Ring(Flying<'scope, 'env>),
    /// In threads.
    Threads(
        &'scope Scope<'scope, 'env>,
        Vec<Option<ScopedJoinHandle<'scope, Ended<'env>>>>,
    ),
}

impl<'env> Flights<'_, 'env> {
    /// Start to read or write at `offset`.
    pub fn start(&mut self, file: &'env File, memory: Memory<'env>, offset: u64) -> Ticket {
        match self {
            Flights::Ring(flying) => flying.start(file, memory, offset),
            Flights::Threads(scope, handles) => {
                handles.push(Some(scope.spawn(move || carry_out(file, memory, offset))));
                Ticket(handles.len() - 1)
            }
        }
    }

    /// Wait for a request: its memory, and the bytes read or written. `None`: it was waited for
    /// before.
    pub fn finish(&mut self, ticket: Ticket) -> Option<Ended<'env>> {
        match self {
            Flights::Ring(flying) => flying.finish(ticket),
            Flights::Threads(_, handles) => {
                let handle = handles.get_mut(ticket.0)?.take()?;
                handle.join().ok()
            }
        }
    }
}

fn carry_out<'env>(file: &File, memory: Memory<'env>, offset: u64) -> Ended<'env> {
    match memory {
        Memory::Into(into) => {
            let result = file.read_at(into, offset);
            (Memory::Into(into), result)
        }
        Memory::From(from) => {
            let result = file.write_at(from, offset);
            (Memory::From(from), result)
        }
    }
}

/// A request in a ring. Its memory is the kernel's until it has ended, so there is no reference.
struct InRing {
    start: *mut u8,
    length: usize,
    reads: bool,
    result: Option<i32>,
}

/// Requests in a ring. `'env` is the life of their memory and files.
pub struct Flying<'ring, 'env> {
    ring: &'ring mut IoUring,
    requests: Vec<Option<InRing>>,
    /// Those that the kernel has taken and not ended.
    under_way: usize,
    /// The kernel took no more.
    broken: bool,
    memory: PhantomData<&'env mut [u8]>,
}

impl<'env> Flying<'_, 'env> {
    fn start(&mut self, file: &'env File, memory: Memory<'env>, offset: u64) -> Ticket {
        let fd = types::Fd(file.as_raw_fd());
        let (start, length, reads) = match memory {
            Memory::Into(into) => (into.as_mut_ptr(), into.len(), true),
            Memory::From(from) => (from.as_ptr().cast_mut(), from.len(), false),
        };
        let ticket = Ticket(self.requests.len());
        let request = if reads {
            opcode::Read::new(fd, start, length as u32)
                .offset(offset)
                .build()
        } else {
            opcode::Write::new(fd, start, length as u32)
                .offset(offset)
                .build()
        };
        let mut in_ring = InRing {
            start,
            length,
            reads,
            result: None,
        };
        if self.under_way >= ENTRIES as usize {
            self.wait();
        }
        // SAFETY: file and memory live for 'env and were handed over to us for that long. Neither
        // ends before this value does, and its end waits for all that the kernel has taken.
        let pushed = !self.broken
            && unsafe {
                self.ring
                    .submission()
                    .push(&request.user_data(ticket.0 as u64))
            }
            .is_ok();
        if pushed && self.submit() {
            self.under_way += 1;
        } else {
            in_ring.result = Some(-libc::EAGAIN);
        }
        self.requests.push(Some(in_ring));
        ticket
    }

    /// Give the kernel what was pushed. `false`: it does not take it, and gets nothing more.
    fn submit(&mut self) -> bool {
        loop {
            match self.ring.submit() {
                Ok(1..) => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    self.broken = true;
                    return false;
                }
            }
        }
    }

    /// Wait until one more has ended.
    fn wait(&mut self) {
        const GET_EVENTS: u32 = 1;
        if self.ring.completion().is_empty() {
            // SAFETY: nothing is submitted, and there is no signal mask.
            let waited = unsafe {
                self.ring
                    .submitter()
                    .enter::<libc::sigset_t>(0, 1, GET_EVENTS, None)
            };
            match waited {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel has memory of ours and does not say until when.
                Err(error) => {
                    tracing::error!(%error, "io_uring does not answer");
                    std::process::abort();
                }
            }
        }
        for entry in self.ring.completion() {
            let request = self.requests.get_mut(entry.user_data() as usize);
            if let Some(Some(request)) = request {
                request.result = Some(entry.result());
                self.under_way -= 1;
            }
        }
    }

    fn finish(&mut self, ticket: Ticket) -> Option<Ended<'env>> {
        while self.requests.get(ticket.0)?.as_ref()?.result.is_none() {
            self.wait();
        }
        let request = self.requests.get_mut(ticket.0)?.take()?;
        let InRing { start, length, .. } = request;
        // SAFETY: these are the parts of the reference that `start` was given for 'env. The kernel
        // is done with it, and it is given back only once.
        let memory = unsafe {
            if request.reads {
                Memory::Into(std::slice::from_raw_parts_mut(start, length))
            } else {
                Memory::From(std::slice::from_raw_parts(start, length))
            }
        };
        let result = match request.result.unwrap_or(-libc::EIO) {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            count => Ok(count as usize),
        };
        Some((memory, result))
    }
}

impl Drop for Flying<'_, '_> {
    fn drop(&mut self) {
        while self.under_way > 0 {
            self.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_end_in_any_order_and_give_their_memory_back() {
        let path = std::env::temp_dir().join(format!("forebay-flights-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        for uring in [false, true] {
            let mut engine = Engine::new(uring);
            let count = 3 * ENTRIES as usize;
            let data: Vec<u8> = (0..count * ALIGNMENT).map(|i| (i / 100) as u8).collect();
            let written = engine.scope(|flights| {
                let parts = data.chunks(ALIGNMENT).enumerate();
                let tickets: Vec<_> = parts
                    .map(|(i, part)| {
                        flights.start(&file, Memory::From(part), (i * ALIGNMENT) as u64)
                    })
                    .collect();
                let backwards = tickets.into_iter().rev();
                backwards
                    .map(|ticket| flights.finish(ticket).unwrap().1.unwrap())
                    .sum::<usize>()
            });
            assert_eq!(written, data.len());
            let mut memory = Aligned::new(data.len() + ALIGNMENT).unwrap();
            engine.scope(|flights| {
                let parts = memory.chunks_mut(ALIGNMENT).enumerate();
                for (i, part) in parts {
                    // Nobody waits for these but the scope.
                    flights.start(&file, Memory::Into(part), (i * ALIGNMENT) as u64);
                }
            });
            assert!(memory[..data.len()] == data);
            let short = engine.scope(|flights| {
                let ticket = flights.start(&file, Memory::Into(&mut memory), ALIGNMENT as u64);
                let (_, result) = flights.finish(ticket).unwrap();
                assert!(flights.finish(ticket).is_none());
                result.unwrap()
            });
            assert_eq!(short, data.len() - ALIGNMENT);
            file.set_len(0).unwrap();
        }
    }
}
