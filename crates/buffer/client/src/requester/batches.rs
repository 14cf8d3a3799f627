//! Many independent requests, which are sent in batches.

use super::Requester;
use super::path::MAX_HOPS;
use crate::session::SessionReply;
use forebay_protocol::message::{
    BatchRequest, MAX_PATH_LINKS, PathOperation, PathRequest, PathRest,
};
use forebay_protocol::{Errno, Ino, NodeIndex, Reply};

/// An operation on the inode to which a path leads from a directory.
#[derive(Clone, Debug)]
pub struct PathTask<'p> {
    pub from: Ino,
    pub path: &'p [u8],
    /// A symbolic link at the end is followed.
    pub follow: bool,
    pub operation: PathOperation,
}

impl PathTask<'_> {
    /// The request for `rest` of the path.
    fn request(&self, rest: &PathRest) -> (NodeIndex, BatchRequest) {
        let node = rest.from.metadata_node();
        match &self.operation {
            // There is no path.
            PathOperation::Name(request) if rest.names.is_empty() => {
                let in_directory = PathOperation::Name(request.clone()).at(rest.from);
                if let Some(forebay_protocol::Request::Name(request)) = in_directory {
                    return (node, BatchRequest::Name(request));
                }
            }
            PathOperation::Name(_) | PathOperation::Inode(_) | PathOperation::File(_) => {}
        }
        let (path, follow, operation) = (rest.clone(), self.follow, self.operation.clone());
        (node, BatchRequest::Path(Box::new(PathRequest { path, follow, operation })))
    }
}

impl Requester {
    /// Sends independent requests in batches. Returns the replies in the order of the requests, as of
    /// [`exchange`](Requester::exchange).
    pub fn exchange_all(
        &self,
        requests: &[(NodeIndex, BatchRequest)],
    ) -> Vec<Result<SessionReply, Errno>> {
        self.exchange_all_expecting(requests, &[])
    }

    /// As [`exchange_all`](Requester::exchange_all), for requests whose replies are expected to have so many
    /// bytes of contents each.
    pub fn exchange_all_expecting(
        &self,
        requests: &[(NodeIndex, BatchRequest)],
        contents: &[usize],
    ) -> Vec<Result<SessionReply, Errno>> {
        let sessions = &self.attachment.sessions;
        let mut replies = sessions.exchange_all(self.caller.as_ref(), requests, contents);
        for ((node, request), reply) in requests.iter().zip(&mut replies) {
            let errno = match reply {
                Ok(SessionReply { reply: Reply::Failed(errno), .. }) => *errno,
                Ok(_) | Err(_) => continue,
            };
            // Nothing was done. By itself it gets the groups of the caller, is repeated for as long as it
            // conflicts with others, and has a long reply.
            if matches!(errno, Errno::EGROUPS | Errno::EAGAIN | Errno::EUNBATCHED) {
                *reply = self.exchange(*node, request.clone().into());
            }
        }
        replies
    }

    /// Carries out operations on paths in batches, as [`exchange_at`](Requester::exchange_at) each.
    pub fn exchange_all_at(&self, tasks: &[PathTask<'_>]) -> Vec<Result<SessionReply, Errno>> {
        let mut replies: Vec<_> = tasks.iter().map(|_| Err(Errno::EPROTO)).collect();
        let begin =
            |task: &PathTask<'_>| PathRest { from: task.from, names: task.path.to_vec(), links: 0 };
        // The tasks without a reply, by their positions, and the rests of their paths.
        let mut open: Vec<(usize, PathRest)> = tasks.iter().map(begin).enumerate().collect();
        for hop in 0..MAX_HOPS {
            let requests: Vec<_> =
                open.iter().map(|(position, rest)| tasks[*position].request(rest)).collect();
            if requests.is_empty() {
                break;
            }
            let received = self.exchange_all(&requests);
            for ((position, _), reply) in std::mem::take(&mut open).into_iter().zip(received) {
                let task = &tasks[position];
                match reply {
                    Ok(SessionReply {
                        reply: Reply::PathContinues { path, link: None }, ..
                    }) if path.links <= MAX_PATH_LINKS => {
                        open.push((position, path));
                    }
                    // A symbolic link on another node than its name is read, and a path on which something
                    // was removed between two requests is resolved again.
                    Ok(SessionReply { reply: Reply::PathContinues { .. }, .. }) => {
                        replies[position] = self.exchange_task(task);
                    }
                    Ok(SessionReply { reply: Reply::Failed(Errno::ESTALE), .. }) if hop > 0 => {
                        replies[position] = self.exchange_task(task);
                    }
                    reply => replies[position] = reply,
                }
            }
        }
        replies
    }

    fn exchange_task(&self, task: &PathTask<'_>) -> Result<SessionReply, Errno> {
        let operation = |_| Ok(task.operation.clone());
        let (_, reply) = self.exchange_at((task.from, task.path), task.follow, operation)?;
        Ok(reply)
    }
}
