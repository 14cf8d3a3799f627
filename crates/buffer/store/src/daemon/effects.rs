//! Effects of the node, carried out by the event loop.

use super::blocking_io::FetchJob;
use super::event_loop::EventLoop;
use crate::node::Effect;
use forebay_protocol::{Errno, Reply};
use std::os::fd::OwnedFd;

impl EventLoop {
    /// Carry out an effect. The records that caused it are flushed.
    pub(super) fn carry_out(&mut self, effect: Effect<OwnedFd>) {
        match effect {
            Effect::Reply { conn, seq, reply, descriptor, cacheable } => {
                self.reply(conn, seq, reply, descriptor, cacheable)
            }
            Effect::Sync { conn, seq, object, put_count } => {
                if !self.log.request_sync_for((conn, seq), object, put_count) {
                    self.reply(conn, seq, Reply::Done, None, false);
                }
            }
            Effect::SyncLog => self.log.request_sync(),
            Effect::FetchObject { conn, seq, object, attr, length, tag } => {
                let job = FetchJob { conn, seq, object, attr: *attr, length, tag };
                if let Some(reply) = self.workers.fetch(job) {
                    self.reply(conn, seq, reply, None, false);
                }
            }
            Effect::InvalidateChecksums(object) => self.workers.invalidate_checksums(object),
            Effect::SyncObject(object) => self.workers.sync_object(object),
            Effect::ObjectWritten(object) => self.workers.object_written(object),
            Effect::Scrub { conn, seq, instance } => {
                if !self.workers.start_scrub(instance, conn, seq) {
                    self.reply(conn, seq, Reply::Failed(Errno::EBUSY), None, false);
                }
            }
            Effect::BulkConnection(conn, session, slot) => {
                self.handovers.push((conn, session, slot));
            }
            Effect::BulkOpen(session, handle, object, mode) => {
                self.data.opens.insert_handle(session, handle, object, mode);
            }
            Effect::BulkGrant(session, handle, bytes) => {
                self.data.opens.set_grant(session, handle, bytes);
            }
            Effect::BulkClose(session, handle) => self.data.opens.close_handle(session, handle),
            Effect::BulkEnd(session) => self.data.slots.shut_down_session(session),
            Effect::SendToPeer { address, message, .. } => {
                self.peers.send_message(address, message)
            }
            Effect::Disconnect(conn) => {
                self.flush_connection(conn);
                self.close_connection(conn);
            }
        }
    }
}
