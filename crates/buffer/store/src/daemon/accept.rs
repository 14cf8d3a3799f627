//! Connections come, and bulk ones go on to threads of their own.

use super::connection::Connection;
use super::data;
use super::events::EventLoop;
use crate::node::{ConnId, Input};
use crate::objects::DiskObjects;
use forebay_net::auth;
use forebay_net::stream::Stream;
use forebay_protocol::SessionId;
use forebay_protocol::identity::PeerIdentity;
use rustix::event::epoll;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Connections that are accepted before others are looked after again.
const AT_ONCE: usize = 64;

fn accepted<S, A>(result: io::Result<(S, A)>) -> Option<S> {
    match result {
        Ok((socket, _)) => Some(socket),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => {
            // Out of descriptors or memory. The listener stays ready, so without a pause the loop
            // would spin until something is closed.
            tracing::warn!(%error, "a connection cannot be accepted");
            std::thread::sleep(Duration::from_millis(10));
            None
        }
    }
}

impl EventLoop {
    pub(super) fn accept_unix(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(socket) = accepted(self.unix.accept()) else {
                return;
            };
            match auth::unix_peer(&socket) {
                Ok(peer) => {
                    self.connected(Stream::Unix(socket), peer);
                }
                Err(error) => tracing::warn!(%error, "a peer that the kernel cannot name"),
            }
        }
    }

    pub(super) fn accept_tcp(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(socket) = self
                .tcp
                .as_ref()
                .map(TcpListener::accept)
                .and_then(accepted)
            else {
                return;
            };
            // Either fails only if the other side has gone already.
            let (Ok(at), Ok(stream)) = (socket.local_addr(), Stream::accepted(socket)) else {
                continue;
            };
            let peer = PeerIdentity {
                uid: u32::MAX,
                gid: u32::MAX,
                groups: Vec::new(),
                trusted: false,
                local: false,
            };
            if let Some(id) = self.connected(stream, peer) {
                self.step(Input::LocalAddress(id, at));
            }
        }
    }

    fn connected(&mut self, stream: Stream, peer: PeerIdentity) -> Option<ConnId> {
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let conn = Connection::new(stream, self.parts.counters.clone()).ok()?;
        let data = epoll::EventData::new_u64(id.0);
        epoll::add(
            &self.epoll,
            conn.stream.as_fd(),
            data,
            epoll::EventFlags::IN,
        )
        .ok()?;
        self.conns.insert(id, conn);
        self.step(Input::Connected(id, peer));
        if let Some(oldest) = self.doors.arrive(id, Instant::now()) {
            tracing::warn!("too many connections that do not say whose they are: one is closed");
            self.forget(oldest);
        }
        self.admit(id);
        Some(id)
    }

    /// Give a connection a thread of its own, which answers its greeting as soon as the connection
    /// before it in its lane is over.
    pub(super) fn hand_over(&mut self, id: ConnId, session: SessionId, lane: u32) {
        let Some(mut conn) = self.conns.remove(&id) else {
            return;
        };
        let guest = self.doors.guest(id).flatten();
        self.doors.left(id);
        self.step(Input::Disconnected(id));
        let _ = epoll::delete(&self.epoll, conn.stream.as_fd());
        self.lanes.shut_down_slot(session, lane);
        let Some(seat) = self.seats.take(guest) else {
            tracing::warn!(
                user = guest,
                "too many bulk connections: one is turned away"
            );
            return;
        };
        let socket = match conn.stream.as_fd().try_clone_to_owned() {
            Ok(socket) => socket,
            Err(error) => return tracing::warn!(%error, "a bulk connection is turned away"),
        };
        let tenure = self.lanes.claim_slot(session, lane, socket);
        let opens = self.opens.clone();
        let counters = self.parts.counters.clone();
        let objects: DiskObjects = self.parts.objects.clone();
        let spawned = std::thread::Builder::new()
            .name("forebay-bulk".into())
            .spawn(move || {
                let _span = tracing::error_span!("session", session = session.0).entered();
                if tenure.wait_for_predecessor() {
                    let welcomed = conn.stream.set_nonblocking(false);
                    let served = welcomed.and_then(|()| conn.send()).and_then(|()| {
                        data::serve_data_connection(
                            &conn.stream,
                            conn.leftover(),
                            session,
                            data::DataContext {
                                opens: &opens,
                                objects: &objects,
                                counters: &counters,
                                path: counters.path,
                                end: tenure.fence(),
                            },
                        )
                    });
                    match served {
                        Err(_) if tenure.fence().is_shut_down() => {}
                        Err(error) => tracing::warn!(%error, "a bulk connection is closed"),
                        Ok(()) => {}
                    }
                }
                drop(tenure);
                drop(seat);
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a bulk connection");
        }
    }
}
