//! Handshakes, encryption and damage on TCP connections.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::channel::{Receiver, Sender, channel};
use forebay_net::chunk::{Chunk, MAX_CHUNK_BYTES};
use forebay_net::frame::{self, Flags, FrameError, Kind, MAX_BODY_BYTES};
use forebay_net::handshake::{self, Refusal, ServerNotAuthenticated, Service};
use forebay_net::record::DataProtection;
use forebay_net::stream::Stream;
use forebay_protocol::Errno;
use forebay_protocol::message::Reply;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SECRET: &[u8] = b"a capability or another secret, 32 b";
const CONTENTS: &[u8] = b"contents of a file that others must not read";
const PAYLOAD_BYTES: usize = 600 << 10;
const KEY: &[u8] = b"the key of this pool";
const MODES: [DataProtection; 3] =
    [DataProtection::Off, DataProtection::Integrity, DataProtection::Encrypted];

fn with_key(secret: &[u8]) -> Authenticator {
    Authenticator { key: Some(PoolKey::new(secret).unwrap()), ..Authenticator::default() }
}

fn payload() -> Vec<u8> {
    CONTENTS.repeat(PAYLOAD_BYTES / CONTENTS.len() + 1)[..PAYLOAD_BYTES].to_vec()
}

/// A server that authenticates one client and then runs `serve`.
fn server<T: Send + 'static>(
    listener: TcpListener,
    auth: Authenticator,
    data: DataProtection,
    serve: impl FnOnce(&mut Sender, &mut Receiver) -> io::Result<T> + Send + 'static,
) -> std::thread::JoinHandle<io::Result<T>> {
    let at = listener.local_addr().unwrap();
    server_at(listener, auth, data, at, serve)
}

/// The same for a server whose own address is `at`.
fn server_at<T: Send + 'static>(
    listener: TcpListener,
    auth: Authenticator,
    data: DataProtection,
    at: SocketAddr,
    serve: impl FnOnce(&mut Sender, &mut Receiver) -> io::Result<T> + Send + 'static,
) -> std::thread::JoinHandle<io::Result<T>> {
    std::thread::spawn(move || {
        let (socket, _) = listener.accept()?;
        let (mut sender, mut receiver) = channel(Stream::tcp(socket)?);
        receiver.set_deadline(Some(Instant::now() + Duration::from_secs(10)))?;
        let auth = Authenticator { data_protection: Some(data), ..auth };
        let server = (Service::Storage, at);
        let client = handshake::accept(&mut sender, &mut receiver, server, &auth, || Ok(()))?;
        assert!(client.peer.trusted);
        receiver.set_deadline(None)?;
        serve(&mut sender, &mut receiver)
    })
}

fn connect(
    at: SocketAddr,
    service: Service,
    auth: &Authenticator,
) -> io::Result<(Sender, Receiver)> {
    let (mut sender, mut receiver) = channel(Stream::tcp(TcpStream::connect(at)?)?);
    receiver.set_deadline(Some(Instant::now() + Duration::from_secs(10)))?;
    handshake::connect(&mut sender, &mut receiver, (service, at), auth)?;
    receiver.set_deadline(None)?;
    Ok((sender, receiver))
}

fn frame_with(reply: &Reply, payload: usize) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_reply(&mut out, 7, Flags::default(), reply, payload).unwrap();
    out
}

/// Receives a frame with its payload.
fn receive(receiver: &mut Receiver) -> io::Result<(Reply, Vec<u8>)> {
    let Some((header, body)) = receiver.receive(MAX_BODY_BYTES)? else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    assert_eq!((header.kind, header.seq), (Kind::Reply, 7));
    let reply = frame::decode(body)?;
    let mut data = vec![0; header.payload];
    let mut have = 0;
    while have < data.len() {
        match receiver.receive_chunk(&mut data[have..])? {
            Chunk::Data(count) => have += count,
            Chunk::End | Chunk::Failed(_) => break,
        }
    }
    data.truncate(have);
    Ok((reply, data))
}

/// Forwards one connection to `to`. `change` sees every byte sequence towards the server, or
/// towards the client, before it is forwarded.
fn proxy(
    to: SocketAddr,
    change: impl Fn(bool, &mut [u8]) + Send + Sync + 'static,
) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(to).unwrap();
        let pass = |mut from: &TcpStream, mut to: &TcpStream, up: bool| {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(count) = from.read(&mut bytes) {
                change(up, &mut bytes[..count]);
                if count == 0 || to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pass(&near, &far, true));
            pass(&far, &near, false);
        });
    });
    (at, thread)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A session through a proxy, whose server has the proxy's address: the client sends a
/// frame with a secret and a payload, the server returns both.
fn session(
    data: DataProtection,
    change: impl Fn(bool, &mut [u8]) + Send + Sync + 'static,
) -> (io::Result<()>, io::Result<()>) {
    let auth = with_key(KEY);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, proxied) = proxy(listener.local_addr().unwrap(), change);
    let serve = |sender: &mut Sender, receiver: &mut Receiver| {
        let (reply, data) = receive(receiver)?;
        sender.send_payload(&frame_with(&reply, data.len()), &data, 5)
    };
    let served = server_at(listener, auth.clone(), data, at, serve);
    let run = || {
        let (mut sender, mut receiver) = connect(at, Service::Storage, &auth)?;
        let reply = Reply::Bytes(SECRET.to_vec());
        sender.send_payload(&frame_with(&reply, PAYLOAD_BYTES), &payload(), 0)?;
        let received = receive(&mut receiver)?;
        assert!(received == (reply, payload()), "what was sent comes back");
        Ok(())
    };
    let ran = run();
    let served = served.join().unwrap();
    proxied.join().unwrap();
    (ran, served)
}

#[test]
fn recorded_session_contains_no_secret_and_encrypted_session_no_contents() {
    for data in MODES {
        let recorded = Arc::new(Mutex::new([Vec::new(), Vec::new()]));
        let record = recorded.clone();
        let (ran, served) = session(data, move |up, bytes| {
            record.lock().unwrap()[usize::from(up)].extend_from_slice(bytes);
        });
        ran.unwrap();
        served.unwrap();
        let derived_key = blake3::derive_key("forebay pool key 1", KEY);
        for bytes in recorded.lock().unwrap().iter() {
            assert!(bytes.len() > PAYLOAD_BYTES);
            for secret in [SECRET, KEY, &derived_key] {
                assert!(!contains(bytes, secret), "{data}");
            }
            let readable = contains(bytes, CONTENTS);
            assert_eq!(readable, data != DataProtection::Encrypted, "{data}");
        }
    }
}

#[test]
fn flipped_bit_in_payload_is_detected_and_ends_the_connection() {
    for data in [DataProtection::Integrity, DataProtection::Encrypted] {
        for up in [true, false] {
            let passed = Mutex::new(0);
            let (ran, served) = session(data, move |towards_server, bytes| {
                let mut passed = passed.lock().unwrap();
                if towards_server == up {
                    let target = 300_000usize.checked_sub(*passed);
                    if let Some(byte) = target.and_then(|target| bytes.get_mut(target)) {
                        *byte ^= 4;
                    }
                    *passed += bytes.len();
                }
            });
            let receiver = if up { served } else { ran };
            let error = receiver.unwrap_err();
            let found = error.get_ref().and_then(|e| e.downcast_ref::<FrameError>());
            assert_eq!(found, Some(&FrameError::Authentication), "{data} {error}");
            assert!(error.to_string().contains("authentication failed"));
        }
    }
}

#[test]
fn flipped_bit_in_frame_is_detected_in_every_mode() {
    for data in MODES {
        let messages = Mutex::new(0);
        let (ran, served) = session(data, move |up, bytes| {
            if up {
                let mut messages = messages.lock().unwrap();
                *messages += 1;
                // Opening, proof, then the frame with its payload.
                if *messages == 3 {
                    bytes[20] ^= 1;
                }
            }
        });
        assert!(ran.is_err());
        let error = served.unwrap_err();
        let found = error.get_ref().and_then(|e| e.downcast_ref::<FrameError>());
        assert_eq!(found, Some(&FrameError::Authentication), "{data}");
    }
}

#[test]
fn client_with_another_key_is_refused_with_authentication_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let own = with_key(KEY);
    let served = server(listener, own, DataProtection::Off, |_, _| Ok(()));
    let other = with_key(b"the key of another pool");
    let error = connect(at, Service::Storage, &other).unwrap_err();
    assert!(error.to_string().contains("authentication failed"), "{error}");
    let refusal = error.get_ref().and_then(|e| e.downcast_ref::<Refusal>());
    assert_eq!(refusal.map(|refusal| refusal.errno), Some(Errno::EKEYREJECTED));
    assert!(served.join().unwrap().is_err());
}

#[test]
fn session_is_bound_to_the_servers_address_and_service() {
    let auth = with_key(KEY);
    for (service, other) in [
        (Service::Storage, Some("127.0.0.1:1")),
        (Service::Storage, Some("127.0.0.2:7511")),
        (Service::Controller, None),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let assumed = other.map_or(at, |other| other.parse().unwrap());
        let served = server_at(listener, auth.clone(), DataProtection::Off, assumed, |_, _| Ok(()));
        let error = connect(at, service, &auth).unwrap_err();
        assert!(error.to_string().contains("authentication failed"), "{error}");
        assert!(served.join().unwrap().is_err());
    }
    // An IPv4 client of a server that listens on IPv6.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mapped = format!("[::ffff:127.0.0.1]:{}", at.port()).parse().unwrap();
    let served = server_at(listener, auth.clone(), DataProtection::Off, mapped, |_, _| Ok(()));
    connect(at, Service::Storage, &auth).unwrap();
    served.join().unwrap().unwrap();
}

#[test]
fn server_without_the_key_is_not_authenticated() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // It answers as a server would, with bytes of its own.
    let served = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let (mut sender, mut receiver) = channel(Stream::tcp(socket).unwrap());
        receiver.receive(MAX_BODY_BYTES).unwrap().unwrap();
        let mut out = Vec::new();
        let fields = (Kind::Handshake, Flags::default(), 0);
        // The variant `Accepted` with 48 bytes: a key and a tag.
        frame::encode(&mut out, fields, &(0u8, vec![9u8; 48]), 0, MAX_BODY_BYTES).unwrap();
        sender.send(&out, None).unwrap();
        receiver.receive(MAX_BODY_BYTES).map(|frame| frame.is_none())
    });
    let error = connect(at, Service::Storage, &with_key(KEY)).unwrap_err();
    assert!(error.get_ref().is_some_and(|e| e.is::<ServerNotAuthenticated>()), "{error}");
    assert!(error.to_string().contains("authentication failed"), "{error}");
    assert!(served.join().unwrap().unwrap_or(true), "the client sends nothing further");
}

#[test]
fn slow_client_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let begun = Instant::now();
    let served = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let (_sender, mut receiver) = channel(Stream::tcp(socket).unwrap());
        let deadline = Instant::now() + Duration::from_millis(300);
        receiver.set_deadline(Some(deadline)).unwrap();
        receiver.receive(MAX_BODY_BYTES).map(|_| ()).unwrap_err()
    });
    let mut client = TcpStream::connect(at).unwrap();
    // One byte at a time, at short intervals.
    while client.write_all(b"F").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
        if served.is_finished() {
            break;
        }
    }
    let error = served.join().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("timeout"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn payload_of_any_length_and_offset_is_received_as_sent() {
    let auth = with_key(KEY);
    for data in MODES {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let cases =
            [(0, 0), (0, 1), (5, 2 * (256 << 10)), (1 << 20, 1 << 20), (7, 9), (0, 100_000)];
        let contents = |length: usize| (0..length).map(|i| (i % 251) as u8).collect::<Vec<u8>>();
        let served = server(listener, auth.clone(), data, move |sender, _| {
            for (offset, length) in cases {
                let head = frame_with(&Reply::Data, length);
                sender.send_payload(&head, &contents(length), offset)?;
                sender.send_chunks(&head, &contents(length))?;
            }
            // A payload that ends early, and one that fails.
            sender.send_chunk(&frame_with(&Reply::Data, 16), b"some")?;
            sender.send_chunk(&[], b"")?;
            sender.send(&frame_with(&Reply::Data, 16), None)?;
            sender.send_failure(Errno::EIO)
        });
        let (_sender, mut receiver) = connect(at, Service::Storage, &auth).unwrap();
        for (_, length) in cases {
            for _ in 0..2 {
                let (reply, received) = receive(&mut receiver).unwrap();
                assert_eq!(reply, Reply::Data);
                assert!(received == contents(length), "{data} {length}");
            }
        }
        assert_eq!(receive(&mut receiver).unwrap().1, b"some");
        receiver.receive(MAX_BODY_BYTES).unwrap().unwrap();
        let failed = receiver.receive_chunk(&mut [0; 16]).unwrap();
        assert_eq!(failed, Chunk::Failed(Errno::EIO));
        served.join().unwrap().unwrap();
    }
}

/// The units of a recorded stream that can be replayed or moved: the record of the frame, then
/// records, or chunks with keyed hashes.
fn units(data: DataProtection, stream: &[u8]) -> Vec<Range<usize>> {
    let mut units: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let is_chunk = data == DataProtection::Integrity && !units.is_empty();
        let length = if is_chunk {
            let word = stream[at..at + 4].try_into().unwrap();
            20 + u32::from_le_bytes(word) as usize
        } else {
            2 + usize::from(u16::from_le_bytes([stream[at], stream[at + 1]]))
        };
        units.push(at..at + length);
        at += length;
    }
    assert_eq!(at, stream.len());
    units
}

/// Sends a frame with a payload of three chunks to a server, through an attacker that changes the
/// recorded stream behind the handshake. Returns the server's error, or what it has received.
fn attacked(
    data: DataProtection,
    attack: impl FnOnce(Vec<u8>) -> Vec<u8> + Send + 'static,
) -> io::Result<(Reply, Vec<u8>)> {
    let auth = with_key(KEY);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let entry = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = entry.local_addr().unwrap();
    let authenticated = Arc::new(AtomicBool::new(false));
    let is_authenticated = authenticated.clone();
    let attacker = std::thread::spawn(move || {
        let (near, _) = entry.accept().unwrap();
        let far = TcpStream::connect(to).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| io::copy(&mut &far, &mut &near));
            let mut recorded = Vec::new();
            let mut bytes = vec![0; 64 << 10];
            loop {
                let count = (&near).read(&mut bytes).unwrap();
                if count == 0 {
                    break;
                }
                if is_authenticated.load(Ordering::Acquire) {
                    recorded.extend_from_slice(&bytes[..count]);
                } else {
                    (&far).write_all(&bytes[..count]).unwrap();
                }
            }
            // The server may close the connection before it has read everything.
            let _ = (&far).write_all(&attack(recorded));
            let _ = far.shutdown(Shutdown::Write);
        });
    });
    let served = server_at(listener, auth.clone(), data, at, |_, receiver| receive(receiver));
    let (mut sender, _receiver) = connect(at, Service::Storage, &auth).unwrap();
    authenticated.store(true, Ordering::Release);
    let payload: Vec<u8> = (0..2 * MAX_CHUNK_BYTES + 100).map(|at| (at % 251) as u8).collect();
    let head = frame_with(&Reply::Data, payload.len());
    sender.send_payload(&head, &payload, 0).unwrap();
    let Stream::Tcp(socket) = &**sender.stream() else { panic!("a TCP connection") };
    socket.shutdown(Shutdown::Write).unwrap();
    let received = served.join().unwrap();
    drop((sender, _receiver));
    attacker.join().unwrap();
    received.inspect(|(_, data)| assert!(*data == payload, "no wrong byte is received"))
}

/// Reassembles a stream from the units with these indices.
fn reassembled(stream: &[u8], units: &[Range<usize>], order: &[usize]) -> Vec<u8> {
    order.iter().flat_map(|index| stream[units[*index].clone()].to_vec()).collect()
}

#[test]
fn replayed_reordered_or_missing_record_fails_authentication() {
    for data in [DataProtection::Integrity, DataProtection::Encrypted] {
        assert!(attacked(data, |stream| stream).is_ok(), "without an attack");
        for (what, order) in [
            ("replayed frame", vec![0, 0, 1, 2, 3]),
            ("replayed data", vec![0, 1, 1, 2, 3]),
            ("reordered", vec![0, 2, 1, 3]),
            ("missing", vec![0, 2, 3]),
            ("frame missing", vec![1, 2, 3]),
        ] {
            let error = attacked(data, move |stream| {
                let units = units(data, &stream);
                let rest = 4..units.len();
                let order: Vec<usize> = order.into_iter().chain(rest).collect();
                reassembled(&stream, &units, &order)
            });
            let error = error.unwrap_err();
            let found = error.get_ref().and_then(|e| e.downcast_ref::<FrameError>());
            let expected = [FrameError::Authentication, FrameError::Length];
            assert!(found.is_some_and(|found| expected.contains(found)), "{data}, {what}: {error}");
            if !(data == DataProtection::Integrity && what.contains("frame")) {
                assert!(error.to_string().contains("authentication failed"), "{what}: {error}");
            }
        }
    }
}

#[test]
fn truncated_stream_is_an_error_in_every_mode() {
    for data in MODES {
        for boundary in [false, true] {
            let error = attacked(data, move |mut stream| {
                let end = match data {
                    DataProtection::Off => stream.len() - 1,
                    DataProtection::Integrity | DataProtection::Encrypted => {
                        units(data, &stream).last().unwrap().start - usize::from(!boundary)
                    }
                };
                stream.truncate(end);
                stream
            });
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionReset, "{data}");
        }
    }
}

#[test]
fn client_of_another_data_protection_is_refused() {
    for own in MODES {
        for wanted in MODES {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let at = listener.local_addr().unwrap();
            let served = server(listener, with_key(KEY), own, |_, _| Ok(()));
            let auth = Authenticator { data_protection: Some(wanted), ..with_key(KEY) };
            let connected = connect(at, Service::Storage, &auth).map(|_| ());
            let served = served.join().unwrap();
            assert_eq!((connected.is_ok(), served.is_ok()), (own == wanted, own == wanted));
            let reason = format!(
                "data protection mismatch: the client is configured for `{wanted}`, the server for \
                 `{own}`"
            );
            for error in [connected.err(), served.err()].into_iter().flatten() {
                assert!(error.to_string().contains(&reason), "{error}");
            }
        }
    }
}
