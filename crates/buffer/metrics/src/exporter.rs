//! HTTP endpoint for one metrics document.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Time for one request, from its first byte to the last byte of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed `accept`, e.g. without free descriptors, which would spin otherwise.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Media type of the Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves `GET /metrics`, generating the document for each request. One thread handles one request
/// at a time, each limited to 8 KiB and 2 s, so a slow client delays other scrapes only. An idle
/// exporter uses no CPU. Dropping it stops the thread.
#[derive(Debug)]
pub struct Exporter {
    address: SocketAddr,
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct StopSignal {
    requested: AtomicBool,
    event: OwnedFd,
}

type Document<'a> = &'a dyn Fn() -> Result<String, String>;

impl Exporter {
    /// Listen at `address` (port 0: any free port). The response is the text that `document`
    /// returns, or status 503 with its error.
    pub fn start(
        address: SocketAddr,
        document: impl Fn() -> Result<String, String> + Send + 'static,
    ) -> io::Result<Exporter> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(StopSignal {
            requested: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let signal = stop.clone();
        let thread = std::thread::Builder::new()
            .name("forebay-metrics".into())
            .spawn(move || serve_requests(&listener, &signal, &document))?;
        Ok(Exporter { address, stop, thread: Some(thread) })
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.stop.requested.store(true, Ordering::Release);
        // Fails only if the counter is full, in which case the thread is awake.
        let _ = rustix::io::write(&self.stop.event, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve_requests(listener: &TcpListener, stop: &StopSignal, document: Document<'_>) {
    while !stop.requested.load(Ordering::Acquire) {
        let mut polled = [
            PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.event.as_fd(), PollFlags::IN),
        ];
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "poll failed: metrics endpoint stopped");
                return;
            }
        }
        match listener.accept() {
            Ok((socket, peer)) => {
                if let Err(error) = serve_request(&socket, document) {
                    tracing::debug!(%error, %peer, "metrics request failed");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept metrics connection");
                std::thread::sleep(ACCEPT_BACKOFF);
            }
        }
    }
}

struct Response {
    status: &'static str,
    media_type: &'static str,
    body: String,
    /// False for HEAD: the body is described but not sent.
    sends_body: bool,
}

impl Response {
    fn plain(status: &'static str, body: String) -> Response {
        Response { status, media_type: METRICS_TYPE, body, sends_body: true }
    }
}

fn serve_request(mut socket: &TcpStream, document: Document<'_>) -> io::Result<()> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    socket.set_nonblocking(false)?;
    let mut request = Vec::new();
    let response = loop {
        match parse_request(&request) {
            Ok(None) if request.len() >= MAX_REQUEST_BYTES => {
                let status = "431 Request Header Fields Too Large";
                break Response::plain(status, String::new());
            }
            Ok(None) => {}
            Ok(Some((method, path))) => break respond(&method, &path, document),
            Err(reason) => break Response::plain("400 Bad Request", format!("{reason}\n")),
        }
        let mut chunk = [0; 1024];
        socket.set_read_timeout(Some(remaining_time(deadline)?))?;
        match socket.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend(chunk.iter().take(count)),
        }
    };
    let mut out = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        response.status,
        response.media_type,
        response.body.len()
    )
    .into_bytes();
    if response.sends_body {
        out.extend_from_slice(response.body.as_bytes());
    }
    let mut unsent = out.as_slice();
    while !unsent.is_empty() {
        socket.set_write_timeout(Some(remaining_time(deadline)?))?;
        let count = socket.write(unsent)?;
        unsent = unsent.get(count..).unwrap_or_default();
    }
    socket.shutdown(std::net::Shutdown::Write)
}

fn remaining_time(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(remaining)
}

/// Method and path; `None` while the header is incomplete.
fn parse_request(bytes: &[u8]) -> Result<Option<(String, String)>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    if request.parse(bytes)?.is_partial() {
        return Ok(None);
    }
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    Ok(Some((text(request.method), text(request.path))))
}

fn respond(method: &str, path: &str, document: Document<'_>) -> Response {
    let sends_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => {
            let text = "method not allowed: use GET or HEAD\n".to_owned();
            return Response::plain("405 Method Not Allowed", text);
        }
    };
    let response = match path.split('?').next().unwrap_or_default() {
        "/metrics" => match document() {
            Ok(text) => Response::plain("200 OK", text),
            Err(reason) => Response::plain("503 Service Unavailable", format!("{reason}\n")),
        },
        "/" => Response {
            media_type: "text/html; charset=utf-8",
            ..Response::plain(
                "200 OK",
                "<!doctype html><title>forebay</title><a href=\"/metrics\">metrics</a>\n".into(),
            )
        },
        _ => Response::plain("404 Not Found", "not found: use /metrics\n".to_owned()),
    };
    Response { sends_body, ..response }
}
