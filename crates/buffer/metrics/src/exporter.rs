//! HTTP endpoint for one metrics document.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Connections at a time; a further one closes the oldest.
const MAX_CONNECTIONS: usize = 256;
/// Time for one request, from its first byte to the last byte of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed `accept`, e.g. without free descriptors, which would spin otherwise.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Media type of the Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves `GET /metrics`, generating the document for each request. One thread handles all
/// connections, each limited to 8 KiB and 2 s; idle and slow ones delay no others, and of more than
/// 256 the oldest is closed. An idle exporter uses no CPU. Dropping it stops the thread.
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

/// A connection whose request has not been answered completely.
struct Connection {
    socket: TcpStream,
    deadline: Instant,
    request: Vec<u8>,
    /// The response; empty until the request has arrived.
    response: Vec<u8>,
    /// Bytes of the response that were sent.
    sent: usize,
}

fn serve_requests(listener: &TcpListener, stop: &StopSignal, document: Document<'_>) {
    let mut connections: VecDeque<Connection> = VecDeque::new();
    while !stop.requested.load(Ordering::Acquire) {
        let ready = match wait(listener, stop, &connections) {
            Ok(ready) => ready,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                tracing::error!(%error, "poll failed: metrics endpoint stopped");
                return;
            }
        };
        let now = Instant::now();
        let mut ready = ready.into_iter();
        connections.retain_mut(|connection| {
            let is_ready = ready.next().unwrap_or(false);
            let served = match is_ready {
                true => connection.advance(document),
                false => Ok(false),
            };
            if let Err(error) = &served {
                tracing::debug!(%error, "metrics request failed");
            }
            matches!(served, Ok(false)) && now < connection.deadline
        });
        accept_all(listener, &mut connections);
    }
}

/// Waits for a connection, a request, space for a response, a deadline, or the stop signal. Returns
/// for each connection whether it can advance.
fn wait(
    listener: &TcpListener,
    stop: &StopSignal,
    connections: &VecDeque<Connection>,
) -> Result<Vec<bool>, rustix::io::Errno> {
    let mut polled = vec![
        PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(stop.event.as_fd(), PollFlags::IN),
    ];
    polled.extend(connections.iter().map(|connection| {
        let wanted = if connection.response.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        PollFd::from_borrowed_fd(connection.socket.as_fd(), wanted)
    }));
    let first = connections.iter().map(|connection| connection.deadline).min();
    let timeout = first.map(|deadline| {
        // A little later, so that the deadline has passed then.
        let rest = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) }
    });
    poll(&mut polled, timeout.as_ref())?;
    Ok(polled.iter().skip(2).map(|polled| !polled.revents().is_empty()).collect())
}

fn accept_all(listener: &TcpListener, connections: &mut VecDeque<Connection>) {
    loop {
        match listener.accept() {
            Ok((socket, peer)) => {
                if let Err(error) = socket.set_nonblocking(true) {
                    tracing::debug!(%error, %peer, "metrics request failed");
                    continue;
                }
                if connections.len() >= MAX_CONNECTIONS {
                    connections.pop_front();
                }
                let deadline = Instant::now() + REQUEST_TIMEOUT;
                let (request, response) = (Vec::new(), Vec::new());
                let connection = Connection { socket, deadline, request, response, sent: 0 };
                connections.push_back(connection);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                tracing::warn!(%error, "cannot accept metrics connection");
                std::thread::sleep(ACCEPT_BACKOFF);
                return;
            }
        }
    }
}

impl Connection {
    /// Reads and writes what is possible now. Returns whether the response was sent.
    fn advance(&mut self, document: Document<'_>) -> io::Result<bool> {
        if self.response.is_empty() {
            let Some(response) = self.read_request(document)? else {
                return Ok(false);
            };
            self.response = response.encode();
        }
        while let Some(unsent) = self.response.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.socket.write(unsent) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.socket.shutdown(std::net::Shutdown::Write)?;
        Ok(true)
    }

    /// The response, once the header of the request has arrived.
    fn read_request(&mut self, document: Document<'_>) -> io::Result<Option<Response>> {
        loop {
            match parse_request(&self.request) {
                Ok(None) if self.request.len() >= MAX_REQUEST_BYTES => {
                    let status = "431 Request Header Fields Too Large";
                    return Ok(Some(Response::plain(status, String::new())));
                }
                Ok(None) => {}
                Ok(Some((method, path))) => return Ok(Some(respond(&method, &path, document))),
                Err(reason) => {
                    return Ok(Some(Response::plain("400 Bad Request", format!("{reason}\n"))));
                }
            }
            let mut chunk = [0; 1024];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.request.extend(chunk.iter().take(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
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

    fn encode(&self) -> Vec<u8> {
        let mut out = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.status,
            self.media_type,
            self.body.len()
        )
        .into_bytes();
        if self.sends_body {
            out.extend_from_slice(self.body.as_bytes());
        }
        out
    }
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
