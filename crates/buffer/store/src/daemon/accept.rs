//! Connections come, and bulk ones go on to threads of their own.

use super::bulk;
use super::connection::Connection;
use super::events::EventLoop;
use crate::objects::DiskObjects;
use crate::shard::{ConnId, Input};
use forebay_wire::SessionId;
use forebay_wire::auth::{self, Peer};
use forebay_wire::stream::Stream;
use rustix::event::epoll;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Most connections at a time; more are turned away.
const MAX_CONNECTIONS: usize = 4096;
/// Most threads for bulk connections.
const MAX_BULK: usize = 1024;

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
        while let Some(socket) = accepted(self.unix.accept()) {
            match auth::unix_peer(&socket) {
                Ok(peer) => self.connected(Stream::Unix(socket), peer),
                Err(error) => tracing::warn!(%error, "a peer that the kernel cannot name"),
            }
        }
    }

    pub(super) fn accept_tcp(&mut self) {
        while let Some(socket) = self
            .tcp
            .as_ref()
            .map(TcpListener::accept)
            .and_then(accepted)
        {
            let _ = socket.set_nodelay(true);
            let peer = Peer {
                uid: u32::MAX,
                gid: u32::MAX,
                groups: Vec::new(),
                trusted: false,
                local: false,
            };
            self.connected(Stream::Tcp(socket), peer);
        }
    }

    fn connected(&mut self, stream: Stream, peer: Peer) {
        if self.conns.len() >= MAX_CONNECTIONS {
            tracing::warn!("too many connections: one is turned away");
            return;
        }
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let Ok(conn) = Connection::new(stream, self.parts.counters.clone()) else {
            return;
        };
        let data = epoll::EventData::new_u64(id.0);
        if epoll::add(
            &self.epoll,
            conn.stream.as_fd(),
            data,
            epoll::EventFlags::IN,
        )
        .is_ok()
        {
            self.conns.insert(id, conn);
            self.step(Input::Connected(id, peer));
        }
    }

    /// Give a connection a thread of its own. The reply to its greeting has been sent.
    pub(super) fn hand_over(&mut self, id: ConnId, session: SessionId) {
        let Some(conn) = self.conns.remove(&id) else {
            return;
        };
        self.step(Input::Disconnected(id));
        let _ = epoll::delete(&self.epoll, conn.stream.as_fd());
        if self.bulk_threads.fetch_add(1, Ordering::AcqRel) >= MAX_BULK {
            self.bulk_threads.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("too many bulk connections: one is turned away");
            return;
        }
        let (opens, threads) = (self.opens.clone(), self.bulk_threads.clone());
        let counters = self.parts.counters.clone();
        let objects: DiskObjects = self.parts.objects.clone();
        let spawned = std::thread::Builder::new()
            .name("forebay-bulk".into())
            .spawn(move || {
                let _span = tracing::error_span!("session", session = session.0).entered();
                let served = bulk::serve(
                    &conn.stream,
                    conn.leftover(),
                    session,
                    bulk::Shared {
                        opens: &opens,
                        objects: &objects,
                        counters: &counters,
                        path: counters.path,
                    },
                );
                if let Err(error) = served {
                    tracing::warn!(%error, "a bulk connection is closed");
                }
                threads.fetch_sub(1, Ordering::AcqRel);
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a bulk connection");
            self.bulk_threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
