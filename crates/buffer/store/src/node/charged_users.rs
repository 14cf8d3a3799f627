//! The user to whose rate a request counts.

use super::Node;
use crate::driver::ConnId;
use crate::objects::Objects;
use forebay_protocol::message::{FileRequest, LockRequest, RECOVERY_SLOT};
use forebay_protocol::{Call, Request, SessionId};

impl<O: Objects + Clone> Node<O> {
    /// The user to whom a call is charged: of a client that is not trusted its own user; of a job's mount
    /// the user of the process, or the owner of the instance for what root or the kernel does there. `None`:
    /// it is charged to nobody, because root's programs, stages and other daemons are limited by what the
    /// controller schedules, and because files must be open again in time after a restart.
    pub(crate) fn charged_user(&self, conn: ConnId, call: &Call) -> Option<u32> {
        if self.restores_a_session(conn, &call.request) {
            return None;
        }
        let user = self.charged_user_of_connection(conn)?;
        let is_trusted = self.connections.get(conn).is_ok_and(|connection| connection.peer.trusted);
        let caller = call.caller.as_ref().filter(|caller| is_trusted && caller.uid != 0);
        Some(caller.map_or(user, |caller| caller.uid))
    }

    /// The user to whom requests on a connection are charged that name none.
    pub(crate) fn charged_user_of_connection(&self, conn: ConnId) -> Option<u32> {
        let connection = self.connections.get(conn).ok()?;
        if !connection.peer.trusted {
            return Some(connection.peer.uid);
        }
        let (session, _) = connection.session?;
        self.owner_of_mount(session)
    }

    /// The user to whom the data connections of a session are charged.
    pub(crate) fn charged_user_of_session(&self, id: SessionId) -> Option<u32> {
        let session = self.context.sessions.get(id).ok()?;
        if session.is_trusted { self.owner_of_mount(id) } else { Some(session.state.uid) }
    }

    /// The owner of the instance that a job's mount shows; `None`: root, or the session is not a mount's.
    fn owner_of_mount(&self, id: SessionId) -> Option<u32> {
        let session = self.context.sessions.get(id).ok()?;
        session.client.mount?;
        let volume = self.volumes.get(&session.state.instance?)?;
        Some(volume.state().spec.uid).filter(|uid| *uid != 0)
    }

    /// Whether a request opens again what a session had open before this start.
    fn restores_a_session(&self, conn: ConnId, request: &Request) -> bool {
        let restores = matches!(
            request,
            Request::File(FileRequest::Open { .. } | FileRequest::OpenObject { .. })
                | Request::Lock(LockRequest::Acquire { .. })
        );
        restores
            && self.connections.session(conn).is_some_and(|(id, slot)| {
                slot == RECOVERY_SLOT && self.context.sessions.is_returning(id)
            })
    }
}
