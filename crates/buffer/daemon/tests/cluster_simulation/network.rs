//! The network: messages are lost, delayed and repeated, and connections break.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use forebay_protocol::address::Address;
use forebay_protocol::message::{BatchReply, Request};
use forebay_protocol::{Call, Reply, SessionId};
use forebay_store::node::{BatchReplies, ConnId, Input};

use crate::actor_thread::{ActorId, ActorOutput, LinkId, SimReply, Turn, WaitFor};
use crate::codec;
use crate::machines::MachineId;
use crate::store_support::seeds::root;
use crate::world::{Event, MS, World};

/// One connection of a client to a storage daemon.
pub struct Link {
    pub from: MachineId,
    pub node: usize,
    /// The life of the node at the time of the connection.
    life: u64,
    /// The daemon has not closed the connection.
    daemon_open: bool,
    /// The client has not closed the connection and does not know that it is broken.
    client_open: bool,
    /// The session whose data connection it is.
    pub data_session: Option<SessionId>,
    /// Arrival of the last message at the daemon, and at the client.
    last_up: u64,
    last_down: u64,
    inbox: VecDeque<SimReply>,
    waiting: Option<(ActorId, u64)>,
    /// The replies to the requests of the batch that the daemon carries out.
    batch: Option<BatchReplies>,
    /// The request of the last call.
    last_request: Option<Request>,
}

pub fn address(node: usize) -> Address {
    Address::Tcp(([10, 0, 0, node as u8 + 1], 7511).into())
}

pub fn node_at(address: &Address) -> Option<usize> {
    match address {
        Address::Tcp(address) => match address.ip() {
            std::net::IpAddr::V4(ip) => (ip.octets()[3] as usize).checked_sub(1),
            std::net::IpAddr::V6(_) => None,
        },
        Address::Unix(_) => None,
    }
}

impl World {
    /// Time until which two machines are partitioned.
    pub fn partitioned_until(&self, a: MachineId, b: MachineId) -> u64 {
        let until = |place| self.isolated.get(&place).copied().unwrap_or(0);
        let pair = self.cut_pairs.get(&(a.min(b), a.max(b))).copied().unwrap_or(0);
        if a == b { 0 } else { until(a).max(until(b)).max(pair) }
    }

    /// Sends a message, which may be lost, delayed or repeated.
    pub fn send(&mut self, from: MachineId, to: MachineId, message: Event) {
        if self.partitioned_until(from, to) > self.now || self.chance(self.faults.lose_message) {
            self.oracle.counts.messages_lost += 1;
            return;
        }
        let copies = 1 + u64::from(self.chance(self.faults.repeat_message));
        self.oracle.counts.messages_repeated += copies - 1;
        for _ in 0..copies {
            let mut delay = MS + self.random.below(20 * MS);
            if self.chance(self.faults.delay_message) {
                delay += self.random.below(20_000) * MS;
            }
            self.schedule(self.now + delay, message.clone());
        }
    }

    /// Delay of a segment of a connection.
    fn latency(&mut self, a: MachineId, b: MachineId) -> u64 {
        let mut latency = 20_000 + self.random.below(MS / 4);
        if self.chance(self.faults.delay_message / 10) {
            latency += self.random.below(1000) * MS;
        }
        self.partitioned_until(a, b).saturating_sub(self.now) + latency
    }

    /// An actor waits for something.
    pub fn actor_waits(&mut self, actor: ActorId, wait_for: WaitFor) {
        let Some(found) = self.actors.get_mut(&actor) else {
            return;
        };
        found.wait += 1;
        let (wait, from) = (found.wait, found.place);
        match wait_for {
            WaitFor::Sleep(time) => {
                let when = self.now + (time.as_nanos() as u64).max(1000);
                self.schedule(when, Event::Wake(actor, wait, Wake::Slept));
            }
            WaitFor::Connect(address, timeout) => {
                self.connect(actor, wait, from, &address, timeout)
            }
            WaitFor::Receive(id, timeout) => {
                let Some(link) = self.links.get_mut(&id) else {
                    return self.schedule(self.now, Event::Wake(actor, wait, Wake::Reset));
                };
                if let Some(reply) = link.inbox.pop_front() {
                    self.schedule(self.now, Event::Wake(actor, wait, Wake::Replied(reply)));
                } else if !link.client_open {
                    self.schedule(self.now, Event::Wake(actor, wait, Wake::Reset));
                } else {
                    link.waiting = Some((actor, wait));
                    if let Some(timeout) = timeout {
                        let when = self.now + timeout.as_nanos() as u64;
                        self.schedule(when, Event::Wake(actor, wait, Wake::TimedOut));
                    }
                }
            }
            WaitFor::End(_) => unreachable!("handled by wake"),
        }
    }

    fn connect(
        &mut self,
        actor: ActorId,
        wait: u64,
        from: MachineId,
        address: &Address,
        timeout: Duration,
    ) {
        let node = node_at(address).filter(|node| *node < self.nodes.len());
        let Some(node) = node else {
            return self.schedule(self.now, Event::Wake(actor, wait, Wake::Refused));
        };
        if self.partitioned_until(from, MachineId::Node(node)) > self.now {
            let when = self.now + timeout.as_nanos() as u64;
            return self.schedule(when, Event::Wake(actor, wait, Wake::TimedOut));
        }
        let when = self.now + self.latency(from, MachineId::Node(node));
        self.schedule(when, Event::ConnectArrives(actor, wait, node));
    }

    /// A connection request arrives at a node.
    pub fn connect_arrives(&mut self, actor: ActorId, wait: u64, node: usize) {
        let Some(found) = self.actors.get(&actor).filter(|found| found.wait == wait) else {
            return;
        };
        let from = found.place;
        let latency = self.latency(from, MachineId::Node(node));
        if self.nodes[node].node.is_none() {
            return self.schedule(self.now + latency, Event::Wake(actor, wait, Wake::Refused));
        }
        self.next_link += 1;
        let id = self.next_link;
        let link = Link {
            from,
            node,
            life: self.nodes[node].life,
            daemon_open: true,
            client_open: true,
            data_session: None,
            last_up: self.now,
            last_down: self.now + latency,
            inbox: VecDeque::new(),
            waiting: None,
            batch: None,
            last_request: None,
        };
        self.links.insert(id, link);
        self.daemon_step(node, Input::Connected(ConnId(id), root(false)));
        self.schedule(self.now + latency, Event::Wake(actor, wait, Wake::Connected(id)));
    }

    /// Sends what actors have written.
    pub fn flush(&mut self) {
        for out in self.shared.take_outputs() {
            match out {
                ActorOutput::Send(id, call, payload) => self.transmit(id, *call, payload),
                ActorOutput::Close(id) => {
                    let when = self.now + self.random.below(5 * MS);
                    if let Some(link) = self.links.get_mut(&id) {
                        link.client_open = false;
                        let when = when.max(link.last_up);
                        self.schedule(when, Event::DaemonEnd(id));
                    }
                }
            }
        }
    }

    fn transmit(&mut self, id: LinkId, call: Call, payload: Vec<u8>) {
        let Some(link) = self.links.get(&id).filter(|link| link.client_open) else {
            return;
        };
        let (from, node, last_up) = (link.from, link.node, link.last_up);
        let breaks = self.chance(self.faults.break_connection);
        let lost = breaks && self.random.chance(300);
        if !lost {
            let mut when = last_up.max(self.now + self.latency(from, MachineId::Node(node))) + 1;
            if breaks && self.random.chance(400) {
                // The call stays in the daemon's socket while the client reconnects.
                when += self.random.below(3000) * MS;
            }
            if let Some(link) = self.links.get_mut(&id) {
                link.last_up = when;
                link.last_request = Some(call.request.clone());
            }
            let call = codec::call(&call, payload.len());
            self.schedule(when, Event::CallArrives(id, call, payload));
        }
        // Connections to a machine that is unreachable for longer than they are kept alive are lost.
        let is_long = self.partitioned_until(from, MachineId::Node(node)) > self.now + 30_000 * MS;
        if breaks || is_long {
            self.oracle.counts.links_broken += 1;
            // Often before the reply, which is lost then.
            let soon = self.random.chance(500);
            let when = self.now + self.random.below(if soon { MS / 2 } else { 40 * MS });
            self.schedule(when, Event::ClientEnd(id));
        }
    }

    /// A call arrives at a daemon.
    pub fn deliver_call(&mut self, id: LinkId, call: Call, payload: Vec<u8>) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let node = link.node;
        if !link.daemon_open || link.life != self.nodes[node].life {
            return;
        }
        match link.data_session {
            Some(session) => {
                let (seq, request) = (call.seq, call.request);
                let (reply, payload) = self.data_call(node, session, &request, &payload);
                self.send_reply(id, Box::new((seq, reply, payload)));
            }
            None => {
                let is_peer = matches!(call.request, Request::Peer(_));
                assert!(!is_peer, "clients send no messages of daemons");
                if let Request::Batch(requests) = &call.request
                    && let Some(link) = self.links.get_mut(&id)
                {
                    self.oracle.counts.batches += 1;
                    link.batch = Some(BatchReplies::new(requests.len()));
                }
                self.daemon_step(node, Input::Call(ConnId(id), call));
            }
        }
    }

    /// A node replies to a call, or to one request of a batch: the replies to these are sent together.
    pub fn reply(&mut self, conn: ConnId, seq: u64, reply: Reply) {
        let id = conn.connection().0;
        let reply = match conn.position() {
            None => reply,
            Some(position) => {
                let Some(link) = self.links.get_mut(&id).filter(|link| link.daemon_open) else {
                    return;
                };
                let batch = link.batch.as_mut().expect("a batch in progress");
                let Some(replies) = batch.add(position, BatchReply { reply, cacheable: false })
                else {
                    return;
                };
                link.batch = None;
                Reply::Batch(replies)
            }
        };
        self.send_reply(id, Box::new((seq, reply, Vec::new())));
    }

    /// A daemon replies.
    fn send_reply(&mut self, id: LinkId, sent: SimReply) {
        let Some(link) = self.links.get(&id).filter(|link| link.daemon_open) else {
            return;
        };
        let (from, node, last_down) = (link.from, link.node, link.last_down);
        let (seq, reply, payload) = *sent;
        let (seq, reply) = codec::reply(seq, &reply, payload.len());
        let reply = Box::new((seq, reply, payload));
        let when = last_down.max(self.now + self.latency(from, MachineId::Node(node))) + 1;
        if let Some(link) = self.links.get_mut(&id) {
            link.last_down = when;
        }
        self.schedule(when, Event::ReplyArrives(id, reply));
    }

    /// A reply arrives at a client.
    pub fn deliver_reply(&mut self, id: LinkId, reply: SimReply) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.client_open) else {
            return;
        };
        match link.waiting.take() {
            Some((actor, wait)) => self.wake(actor, wait, Wake::Replied(reply)),
            None => link.inbox.push_back(reply),
        }
    }

    /// A client learns that its connection is broken; the daemon does some time later.
    pub fn client_end(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.client_open) else {
            return;
        };
        link.client_open = false;
        let waiting = link.waiting.take();
        let last_up = link.last_up;
        let when = last_up.max(self.now + self.random.below(2000) * MS);
        self.schedule(when, Event::DaemonEnd(id));
        if let Some((actor, wait)) = waiting {
            self.wake(actor, wait, Wake::Reset);
        }
    }

    /// A daemon learns that a connection is closed.
    pub fn daemon_end(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        if link.daemon_open
            && link.life == self.nodes[link.node].life
            && link.data_session.is_none()
        {
            self.daemon_step(link.node, Input::Disconnected(ConnId(id)));
        }
    }

    /// The connections on which actors wait for replies.
    pub fn awaited(&self) -> Vec<String> {
        let waiting = self.links.iter().filter(|(_, link)| link.waiting.is_some());
        let text = |(id, link): (&LinkId, &Link)| {
            let (daemon, client) = (link.daemon_open, link.client_open);
            format!(
                "{id}: {:?} -> node {}, {:?} (open at daemon {daemon}, at client {client}, {:?}, {:?})",
                link.from, link.node, link.last_request, link.data_session, link.waiting
            )
        };
        waiting.map(text).collect()
    }

    /// A daemon closes a connection.
    pub fn close_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.daemon_open = false;
        let when = link.last_down.max(self.now) + 1;
        self.schedule(when, Event::ClientEnd(id));
    }

    /// A daemon has crashed: its peers notice soon.
    pub fn break_links_to(&mut self, node: usize) {
        let ids: Vec<LinkId> = self.links.keys().copied().collect();
        for id in ids {
            if self.links[&id].node == node {
                let when = self.now + self.random.below(5 * MS);
                self.schedule(when, Event::ClientEnd(id));
            }
        }
    }

    /// A machine has crashed: daemons notice within seconds.
    pub fn break_links_from(&mut self, place: MachineId) {
        let ids: Vec<LinkId> = self.links.keys().copied().collect();
        for id in ids {
            let delay = self.random.below(3000) * MS;
            let Some(link) = self.links.get_mut(&id).filter(|link| link.from == place) else {
                continue;
            };
            (link.client_open, link.waiting) = (false, None);
            let when = link.last_up.max(self.now + delay);
            self.schedule(when, Event::DaemonEnd(id));
        }
    }
}

/// The event that an actor has waited for.
#[derive(Clone, Debug)]
pub enum Wake {
    Slept,
    Connected(LinkId),
    Refused,
    Replied(SimReply),
    Reset,
    TimedOut,
}

impl Wake {
    pub fn turn(self) -> Turn {
        match self {
            Wake::Slept => Turn::Resume,
            Wake::Connected(id) => Turn::Connected(Ok(id)),
            Wake::Refused => Turn::Connected(Err(io::ErrorKind::ConnectionRefused.into())),
            Wake::Replied(reply) => Turn::Replied(Ok(reply)),
            Wake::Reset => Turn::Replied(Err(io::ErrorKind::ConnectionReset.into())),
            Wake::TimedOut => Turn::Replied(Err(io::ErrorKind::WouldBlock.into())),
        }
    }
}
