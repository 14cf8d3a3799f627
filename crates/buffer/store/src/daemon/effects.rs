//! What the shard decides is carried out: answers, syncs, and work for other threads.

use super::events::EventLoop;
use super::syncer::SyncJob;
use super::{blocking_io, checksummer};
use crate::node::{ConnId, Effect, fetch_reply};
use crate::objects::ObjectId;
use forebay_protocol::message::MAX_INLINE_FILE_BYTES;
use forebay_protocol::{Errno, InstanceId, Reply};
use std::os::fd::OwnedFd;
use std::sync::mpsc::TrySendError;

impl EventLoop {
    pub(super) fn carry_out(&mut self, effect: Effect<OwnedFd>) {
        match effect {
            Effect::Reply {
                conn,
                seq,
                reply,
                descriptor,
                cacheable,
            } => self.reply(conn, seq, &reply, descriptor, cacheable),
            Effect::Sync {
                conn,
                seq,
                object,
                data_only,
                fresh,
                put_count: contents,
            } => {
                let object = object.map(|id| (id, data_only, fresh));
                self.sync((conn, seq), object, contents);
            }
            Effect::SyncLog => self.sync_log(),
            Effect::FetchObject {
                conn,
                seq,
                object,
                attr,
                length,
            } => self.fetch(blocking_io::FetchJob {
                conn,
                seq,
                object,
                attr: *attr,
                length,
            }),
            Effect::InvalidateChecksums(object) => self.unseal(object),
            Effect::ObjectWritten(object) => self.seal_later(object),
            Effect::Scrub {
                conn,
                seq,
                instance,
            } => self.scrub(conn, seq, instance),
            Effect::BulkConnection(conn, session, lane) => {
                self.bulk_pending.push((conn, session, lane))
            }
            Effect::BulkOpen(session, handle, object, mode) => {
                self.opens.insert_handle(session, handle, object, mode);
            }
            Effect::BulkGrant(session, handle, bytes) => {
                self.opens.set_grant(session, handle, bytes)
            }
            Effect::BulkClose(session, handle) => self.opens.close_handle(session, handle),
            Effect::SendToPeer {
                address, message, ..
            } => self.peers.send_message(address, message),
            Effect::Disconnect(conn) => {
                self.push_out(conn);
                self.forget(conn);
            }
        }
    }

    /// Have an object, so many objects that came whole, and the log made durable, and then answer.
    fn sync(
        &mut self,
        caller: (ConnId, u64),
        object: Option<(ObjectId, bool, bool)>,
        contents: u64,
    ) {
        let log = &self.parts.log;
        let nothing = object.is_none() && contents == 0;
        if nothing && log.last_sequence() <= log.durable_sequence() {
            return self.reply(caller.0, caller.1, &Reply::Done, None, false);
        }
        let (segment, sequence) = (log.current_segment().to_owned(), log.last_sequence());
        self.submit(SyncJob {
            caller: Some(caller),
            object,
            contents,
            segment,
            sequence,
        });
    }

    /// Have all that was written to the log made durable.
    pub(super) fn sync_log(&mut self) {
        let log = &self.parts.log;
        if log.last_sequence() > self.sync_under_way {
            let (segment, sequence) = (log.current_segment().to_owned(), log.last_sequence());
            self.sync_under_way = sequence;
            self.submit(SyncJob {
                caller: None,
                object: None,
                contents: 0,
                segment,
                sequence,
            });
        }
    }

    fn submit(&mut self, job: SyncJob) {
        if let Some((sender, _)) = &self.syncer {
            // The queue holds more jobs than there can be callers, so this does not wait; it
            // fails only if the thread is gone, which the loop learns from a failed Done.
            let _ = sender.send(job);
        }
    }

    /// Answer with a small object: at once if it is in memory, else when it has been read.
    fn fetch(&mut self, job: blocking_io::FetchJob) {
        let objects = &self.parts.objects;
        let mut object = objects.fetch_object(job.object, MAX_INLINE_FILE_BYTES, false);
        let mut job = job;
        if object == Err(Errno::EAGAIN) {
            match self.hand_out(blocking_io::BlockingJob::Read(job)) {
                Some(blocking_io::BlockingJob::Read(left)) => job = left,
                _ => return,
            }
            object = self
                .parts
                .objects
                .fetch_object(job.object, MAX_INLINE_FILE_BYTES, true);
        }
        let reply = fetch_reply(job.attr, job.length, object);
        self.reply(job.conn, job.seq, &reply, None, false);
    }

    /// Give threads that wait for the device something to do, or get it back.
    fn hand_out(&self, job: blocking_io::BlockingJob) -> Option<blocking_io::BlockingJob> {
        let (sender, _) = self.fetchers.as_ref()?;
        match sender.try_send(job) {
            Ok(()) => None,
            Err(TrySendError::Full(left) | TrySendError::Disconnected(left)) => Some(left),
        }
    }

    fn unseal(&mut self, object: ObjectId) {
        if self
            .hand_out(blocking_io::BlockingJob::Unseal(object))
            .is_some()
        {
            let result = self.parts.objects.invalidate_checksums(object);
            self.parts.wake.post_invalidated(object, result);
        }
    }

    /// An object was written to: it gets checksums when nobody writes to it any more.
    fn seal_later(&mut self, object: ObjectId) {
        if self.written.push(object)
            && let Some((sender, _)) = &self.sealer
        {
            // A full queue is looked at, too.
            let _ = sender.try_send(checksummer::ChecksumJob::Look);
        }
    }

    fn scrub(&mut self, conn: ConnId, seq: u64, instance: InstanceId) {
        let job = checksummer::ChecksumJob::Scrub(instance, conn, seq);
        let taken = self.sealer.as_ref().map(|(s, _)| s.try_send(job).is_ok());
        if taken != Some(true) {
            self.reply(conn, seq, &Reply::Failed(Errno::EBUSY), None, false);
        }
    }
}
