//! Asking an open pool, from any thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::Duration;

use forebay_job_script::BufferPath;

use super::Event;
use crate::activity::Status;
use crate::controller_client::{ControllerClient, RequestIds, controller_gone};
use forebay_control::controller::{
    Failure, JobView, Outcome, Request, RequestEnvelope, RequestedStage,
};
use forebay_control::messages::{Owner, StageId};

/// One who makes requests of an open pool; clones may do so from any thread. Once the pool is
/// closed all of them fail.
#[derive(Clone)]
pub struct Asker {
    events: Sender<Event>,
    caller: Owner,
    ids: Arc<RequestIds>,
}

impl Asker {
    /// For `caller`, of the driver that takes `events`.
    pub(super) fn new(events: Sender<Event>, caller: Owner) -> std::io::Result<Asker> {
        Ok(Asker {
            events,
            caller,
            ids: Arc::new(RequestIds::new()?),
        })
    }

    /// Ends the driver.
    pub(super) fn stop(&self) {
        let _ = self.events.send(Event::Stop);
    }

    /// What the pool's status is, if it says so within `patience`.
    pub fn status_within(&self, patience: Duration) -> Result<Status, String> {
        let closed = || "the pool is closed".to_owned();
        let answer = self.question(Event::Status).map_err(|_| closed())?;
        answer.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => "the pool is busy".to_owned(),
            RecvTimeoutError::Disconnected => closed(),
        })
    }

    /// Asks the driver; the answer comes through the channel.
    fn question<T>(
        &self,
        event: impl FnOnce(SyncSender<T>) -> Event,
    ) -> Result<Receiver<T>, Failure> {
        let (answer, receiver) = sync_channel(1);
        self.events
            .send(event(answer))
            .map_err(|_| controller_gone())?;
        Ok(receiver)
    }
}

impl ControllerClient for Asker {
    fn caller(&self) -> Owner {
        self.caller
    }

    fn submit(&self, request: Request) -> Result<Receiver<Outcome>, Failure> {
        let envelope = Box::new(RequestEnvelope {
            id: self.ids.next_id(),
            caller: self.caller,
            request,
        });
        self.question(|answer| Event::Ask(envelope, answer))
    }

    fn status(&self) -> Result<Status, Failure> {
        let answer = self.question(Event::Status)?;
        answer.recv().map_err(|_| controller_gone())
    }

    fn mount_variables(&self, token: &str) -> Result<Vec<(String, String)>, Failure> {
        let answer = self.question(|answer| Event::Paths(token.to_owned(), answer))?;
        answer.recv().unwrap_or_else(|_| Err(controller_gone()))
    }

    fn job_view(&self, token: &str) -> Result<JobView, Failure> {
        let answer = self.question(|answer| Event::Job(token.to_owned(), answer))?;
        answer.recv().unwrap_or_else(|_| Err(controller_gone()))
    }

    fn requested_stages(
        &self,
        token: &str,
        about: &[BufferPath],
        numbers: &[StageId],
    ) -> Result<Vec<RequestedStage>, Failure> {
        let (token, about, numbers) = (token.to_owned(), about.to_vec(), numbers.to_vec());
        let answer = self.question(|answer| Event::Asked(token, about, numbers, answer))?;
        answer.recv().unwrap_or_else(|_| Err(controller_gone()))
    }
}
