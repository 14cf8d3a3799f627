//! The HTTP endpoint, used by well-behaved, slow and broken clients.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use forebay_metrics::{Counter, Exporter};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An exporter whose document counts the scrapes; the fourth scrape fails.
fn start_exporter() -> (Exporter, Arc<Counter>) {
    let scrapes = Arc::new(Counter::default());
    let counted = scrapes.clone();
    let document = move || {
        counted.increment();
        match counted.get() {
            4 => Err("not now".to_owned()),
            count => Ok(format!("asked_total {count}\n")),
        }
    };
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    (Exporter::start(address, document).unwrap(), scrapes)
}

fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request).unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_scrape_generates_a_fresh_document() {
    let (exporter, _) = start_exporter();
    for count in 1..4 {
        let text = exchange(exporter.address(), b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(body, format!("asked_total {count}\n"));
    }
    let text = exchange(exporter.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 503 ") && text.ends_with("\r\n\r\nnot now\n"), "{text}");
}

#[test]
fn invalid_requests_are_refused_with_status_code() {
    let (exporter, scrapes) = start_exporter();
    let refused = [
        (&b"GET /other HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
        (b"\x16\x03\x01\x02 rubbish\r\n\r\n", "HTTP/1.1 400 "),
        (b"HEAD /nothing HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 "),
    ];
    for (request, expected) in refused {
        let text = exchange(exporter.address(), request);
        assert!(text.starts_with(expected), "{text}");
    }
    assert_eq!(scrapes.get(), 0);
    let mut long = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    long.resize(8 << 10, b'a');
    assert!(exchange(exporter.address(), &long).starts_with("HTTP/1.1 431 "));
}

#[test]
fn slow_clients_time_out_and_shutdown_does_not_wait_for_idle_ones() {
    let (exporter, _) = start_exporter();
    let begun = Instant::now();
    let mut slow = TcpStream::connect(exporter.address()).unwrap();
    slow.write_all(b"GET /metr").unwrap();
    let mut closed = TcpStream::connect(exporter.address()).unwrap();
    closed.write_all(b"GET").unwrap();
    closed.shutdown(Shutdown::Both).unwrap();
    let text = exchange(exporter.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(text.ends_with("asked_total 1\n"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    let _idle = TcpStream::connect(exporter.address()).unwrap();
    drop(exporter);
    assert!(begun.elapsed() < Duration::from_secs(8));
}

#[test]
fn idle_connections_do_not_keep_others_waiting() {
    let (exporter, _) = start_exporter();
    // One after the other they would take minutes.
    let idle: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(exporter.address()).unwrap()).collect();
    let mut slow = TcpStream::connect(exporter.address()).unwrap();
    slow.write_all(b"GET /met").unwrap();
    let text = exchange(exporter.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    slow.write_all(b"rics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    slow.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    drop(idle);
}

#[test]
fn more_connections_than_the_limit_close_the_oldest() {
    let (exporter, _) = start_exporter();
    let idle: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(exporter.address()).unwrap()).collect();
    let text = exchange(exporter.address(), b"GET /metrics HTTP/1.1\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    let mut oldest = &idle[0];
    let mut rest = Vec::new();
    assert!(matches!(oldest.read_to_end(&mut rest), Ok(0) | Err(_)));
}
