//! An HTTP responder for one document.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest request that is read, in bytes.
const LONGEST: usize = 8 << 10;
/// How long one request may take from its first byte to the last of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Media type of the text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers `GET /metrics` with a document made anew for each request. One thread, one request at a
/// time, each at most 8 KiB and 2 s: whoever is slow holds up other readers for that long, and
/// nothing else. Waiting costs no CPU. Dropping it stops it.
#[derive(Debug)]
pub struct Exporter {
    address: SocketAddr,
    stop: Arc<(AtomicBool, OwnedFd)>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Listen at `address` (port 0 takes a free one) and answer with what `document` returns, or
    /// with status 503 and the reason why there is none.
    pub fn start(
        address: SocketAddr,
        document: impl Fn() -> Result<String, String> + Send + 'static,
    ) -> io::Result<Exporter> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new((AtomicBool::new(false), bell));
        let told = stop.clone();
        let thread = std::thread::Builder::new()
            .name("forebay-metrics".into())
            .spawn(move || serve(&listener, &told, &document))?;
        Ok(Exporter {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        // It fails only when the counter is full, and then the thread is awake already.
        let _ = rustix::io::write(&self.stop.1, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stop: &(AtomicBool, OwnedFd), document: Document<'_>) {
    while !stop.0.load(Ordering::Acquire) {
        let mut waited = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.1.as_fd(), PollFlags::IN),
        ];
        match poll(&mut waited, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "metrics are no longer served");
                return;
            }
        }
        match listener.accept() {
            Ok((socket, peer)) => {
                if let Err(error) = answer(&socket, document) {
                    tracing::debug!(%error, %peer, "a request for metrics was not answered");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Out of descriptors: without a pause this would spin until one is free.
                tracing::warn!(%error, "a request for metrics cannot be accepted");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn answer(mut socket: &TcpStream, document: Document<'_>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    socket.set_nonblocking(false)?;
    let mut request = Vec::new();
    let (status, kind, body, whole) = loop {
        match requested(&request) {
            Ok(None) if request.len() >= LONGEST => {
                break (
                    "431 Request Header Fields Too Large",
                    TEXT,
                    String::new(),
                    true,
                );
            }
            Ok(None) => {}
            Ok(Some((method, path))) => break reply(&method, &path, document),
            Err(reason) => break ("400 Bad Request", TEXT, format!("{reason}\n"), true),
        }
        let mut chunk = [0; 1024];
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend(chunk.iter().take(count)),
        }
    };
    let mut out = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if whole {
        out.extend_from_slice(body.as_bytes());
    }
    let mut rest = out.as_slice();
    while !rest.is_empty() {
        socket.set_write_timeout(Some(left(deadline)?))?;
        let count = socket.write(rest)?;
        rest = rest.get(count..).unwrap_or_default();
    }
    socket.shutdown(std::net::Shutdown::Write)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// Method and path, once all of the head is there.
fn requested(bytes: &[u8]) -> Result<Option<(String, String)>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(bytes)?.is_partial() {
        return Ok(None);
    }
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    Ok(Some((text(request.method), text(request.path))))
}

type Document<'a> = &'a dyn Fn() -> Result<String, String>;
type Reply = (&'static str, &'static str, String, bool);

fn reply(method: &str, path: &str, document: Document<'_>) -> Reply {
    let path = path.split('?').next().unwrap_or_default();
    let whole = match method {
        "GET" => true,
        "HEAD" => false,
        _ => {
            let text = "only GET and HEAD are answered\n".to_owned();
            return ("405 Method Not Allowed", TEXT, text, true);
        }
    };
    match path {
        "/metrics" => match document() {
            Ok(text) => ("200 OK", TEXT, text, whole),
            Err(reason) => (
                "503 Service Unavailable",
                TEXT,
                format!("{reason}\n"),
                whole,
            ),
        },
        "/" => (
            "200 OK",
            "text/html; charset=utf-8",
            "<!doctype html><title>forebay</title><a href=\"/metrics\">metrics</a>\n".to_owned(),
            whole,
        ),
        _ => (
            "404 Not Found",
            TEXT,
            "there is only /metrics\n".to_owned(),
            whole,
        ),
    }
}
