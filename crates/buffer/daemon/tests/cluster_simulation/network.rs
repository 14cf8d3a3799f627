//! The network: messages are lost, delayed and repeated, and connections break.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use forebay_protocol::PeerIdentity;
use forebay_protocol::address::Address;
use forebay_protocol::message::Request;
use forebay_protocol::{Call, SessionId};
use forebay_store::node::{ConnId, Input};

use crate::actor_thread::{ActorId, ActorOutput, LinkId, SimReply, Turn, WaitFor};
use crate::codec;
use crate::machines::MachineId;
use crate::world::{Event, MS, World};

/// One connection of a client to a storage daemon.
pub struct Link {
    pub from: MachineId,
    pub node: usize,
    /// The daemon's start that has the other end.
    life: u64,
    /// The daemon has not closed it.
    open: bool,
    /// Whether the client does not know yet that it is broken.
    whole: bool,
    /// It carries data of this session.
    pub bulk: Option<SessionId>,
    /// Arrival of the last message in each direction.
    up: u64,
    down: u64,
    inbox: VecDeque<SimReply>,
    waiting: Option<(ActorId, u64)>,
    /// The last call.
    asked: Option<Request>,
}

/// Another host's administrator, whom the daemon knows already.
pub fn root() -> PeerIdentity {
    PeerIdentity { uid: 0, gid: 0, groups: Vec::new(), trusted: true, local: false }
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
        if a == b { 0 } else { until(a).max(until(b)) }
    }

    /// Sends a message, which may be lost, delayed or repeated.
    pub fn send(&mut self, from: MachineId, to: MachineId, message: Event) {
        if self.partitioned_until(from, to) > self.now || self.chance(self.faults.lose) {
            self.truth.counts.messages_lost += 1;
            return;
        }
        let copies = 1 + u64::from(self.chance(self.faults.repeat));
        self.truth.counts.messages_repeated += copies - 1;
        for _ in 0..copies {
            let mut delay = MS + self.random.below(20 * MS);
            if self.chance(self.faults.delay) {
                delay += self.random.below(20_000) * MS;
            }
            self.schedule(self.now + delay, message.clone());
        }
    }

    /// Delay of a segment of a connection.
    fn latency(&mut self, a: MachineId, b: MachineId) -> u64 {
        let mut latency = 20_000 + self.random.below(MS / 4);
        if self.chance(self.faults.delay / 10) {
            latency += self.random.below(1000) * MS;
        }
        self.partitioned_until(a, b).saturating_sub(self.now) + latency
    }

    /// An actor waits for something.
    pub fn asked(&mut self, actor: ActorId, ask: WaitFor) {
        let Some(found) = self.actors.get_mut(&actor) else {
            return;
        };
        found.wait += 1;
        let (wait, from) = (found.wait, found.place);
        match ask {
            WaitFor::Sleep(time) => {
                let when = self.now + (time.as_nanos() as u64).max(1000);
                self.schedule(when, Event::Wake(actor, wait, Wake::Slept));
            }
            WaitFor::Connect(address, patience) => {
                self.connect(actor, wait, from, &address, patience)
            }
            WaitFor::Receive(id, patience) => {
                let Some(link) = self.links.get_mut(&id) else {
                    return self.schedule(self.now, Event::Wake(actor, wait, Wake::Reset));
                };
                if let Some(said) = link.inbox.pop_front() {
                    self.schedule(self.now, Event::Wake(actor, wait, Wake::Said(said)));
                } else if !link.whole {
                    self.schedule(self.now, Event::Wake(actor, wait, Wake::Reset));
                } else {
                    link.waiting = Some((actor, wait));
                    if let Some(patience) = patience {
                        let when = self.now + patience.as_nanos() as u64;
                        self.schedule(when, Event::Wake(actor, wait, Wake::Late));
                    }
                }
            }
            WaitFor::End(_) => unreachable!("the world deals with that"),
        }
    }

    fn connect(
        &mut self,
        actor: ActorId,
        wait: u64,
        from: MachineId,
        address: &Address,
        patience: Duration,
    ) {
        let node = node_at(address).filter(|node| *node < self.nodes.len());
        let Some(node) = node else {
            return self.schedule(self.now, Event::Wake(actor, wait, Wake::Refused));
        };
        if self.partitioned_until(from, MachineId::Node(node)) > self.now {
            let when = self.now + patience.as_nanos() as u64;
            return self.schedule(when, Event::Wake(actor, wait, Wake::Late));
        }
        let when = self.now + self.latency(from, MachineId::Node(node));
        self.schedule(when, Event::Syn(actor, wait, node));
    }

    /// A client wants to connect.
    pub fn syn(&mut self, actor: ActorId, wait: u64, node: usize) {
        let Some(found) = self.actors.get(&actor).filter(|found| found.wait == wait) else {
            return;
        };
        let from = found.place;
        let latency = self.latency(from, MachineId::Node(node));
        if self.nodes[node].running.is_none() {
            return self.schedule(self.now + latency, Event::Wake(actor, wait, Wake::Refused));
        }
        self.next_link += 1;
        let id = self.next_link;
        let link = Link {
            from,
            node,
            life: self.nodes[node].life,
            open: true,
            whole: true,
            bulk: None,
            up: self.now,
            down: self.now + latency,
            inbox: VecDeque::new(),
            waiting: None,
            asked: None,
        };
        self.links.insert(id, link);
        self.daemon_step(node, Input::Connected(ConnId(id), root()));
        self.schedule(self.now + latency, Event::Wake(actor, wait, Wake::Linked(id)));
    }

    /// Sends what actors have written.
    pub fn flush(&mut self) {
        for out in self.shared.take_outputs() {
            match out {
                ActorOutput::Send(id, call, payload) => self.transmit(id, *call, payload),
                ActorOutput::Close(id) => {
                    let when = self.now + self.random.below(5 * MS);
                    if let Some(link) = self.links.get_mut(&id) {
                        link.whole = false;
                        let when = when.max(link.up);
                        self.schedule(when, Event::UpEnd(id));
                    }
                }
            }
        }
    }

    fn transmit(&mut self, id: LinkId, call: Call, payload: Vec<u8>) {
        let Some(link) = self.links.get(&id).filter(|link| link.whole) else {
            return;
        };
        let (from, node, up) = (link.from, link.node, link.up);
        let breaks = self.chance(self.faults.cut);
        let lost = breaks && self.random.chance(300);
        if !lost {
            let mut when = up.max(self.now + self.latency(from, MachineId::Node(node))) + 1;
            if breaks && self.random.chance(400) {
                // It stays in the daemon's socket while the client reconnects.
                when += self.random.below(3000) * MS;
            }
            if let Some(link) = self.links.get_mut(&id) {
                link.up = when;
                link.asked = Some(call.request.clone());
            }
            let call = codec::call(&call, payload.len());
            self.schedule(when, Event::Up(id, call, payload));
        }
        // Who is out of reach for longer than connections are kept alive loses them.
        let long = self.partitioned_until(from, MachineId::Node(node)) > self.now + 30_000 * MS;
        if breaks || long {
            self.truth.counts.links_broken += 1;
            // Often before the answer, which is lost then.
            let soon = self.random.chance(500);
            let when = self.now + self.random.below(if soon { MS / 2 } else { 40 * MS });
            self.schedule(when, Event::DownEnd(id));
        }
    }

    /// A call arrives at a daemon.
    pub fn deliver_call(&mut self, id: LinkId, call: Call, payload: Vec<u8>) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let node = link.node;
        if !link.open || link.life != self.nodes[node].life {
            return;
        }
        match link.bulk {
            Some(session) => {
                let (seq, request) = (call.seq, call.request);
                let (reply, payload) = self.bulk(node, session, request, &payload);
                self.send_reply(id, Box::new((seq, reply, payload)));
            }
            None => {
                let peer = matches!(call.request, Request::Peer(_));
                assert!(!peer, "clients are no daemons");
                self.daemon_step(node, Input::Call(ConnId(id), call));
            }
        }
    }

    /// A daemon replies.
    pub fn send_reply(&mut self, id: LinkId, said: SimReply) {
        let Some(link) = self.links.get(&id).filter(|link| link.open) else {
            return;
        };
        let (from, node, down) = (link.from, link.node, link.down);
        let (seq, reply) = codec::reply(said.0, &said.1, said.2.len());
        let said = Box::new((seq, reply, said.2));
        let when = down.max(self.now + self.latency(from, MachineId::Node(node))) + 1;
        if let Some(link) = self.links.get_mut(&id) {
            link.down = when;
        }
        self.schedule(when, Event::Down(id, said));
    }

    /// A reply arrives at a client.
    pub fn deliver_reply(&mut self, id: LinkId, said: SimReply) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.whole) else {
            return;
        };
        match link.waiting.take() {
            Some((actor, wait)) => self.wake(actor, wait, Wake::Said(said)),
            None => link.inbox.push_back(said),
        }
    }

    /// A client learns that its connection is broken; the daemon does some time later.
    pub fn down_end(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.whole) else {
            return;
        };
        link.whole = false;
        let waiting = link.waiting.take();
        let up = link.up;
        let when = up.max(self.now + self.random.below(2000) * MS);
        self.schedule(when, Event::UpEnd(id));
        if let Some((actor, wait)) = waiting {
            self.wake(actor, wait, Wake::Reset);
        }
    }

    /// A daemon learns that a connection is closed.
    pub fn up_end(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        if link.open && link.life == self.nodes[link.node].life && link.bulk.is_none() {
            self.daemon_step(link.node, Input::Disconnected(ConnId(id)));
        }
    }

    /// What actors wait for.
    pub fn awaited(&self) -> Vec<String> {
        let waiting = self.links.iter().filter(|(_, link)| link.waiting.is_some());
        let text = |(id, link): (&LinkId, &Link)| {
            let (open, whole, bulk) = (link.open, link.whole, link.bulk);
            format!(
                "{id}: {:?} -> node {}, {:?} (open {open}, whole {whole}, bulk {bulk:?}, {:?})",
                link.from, link.node, link.asked, link.waiting
            )
        };
        waiting.map(text).collect()
    }

    /// A daemon closes a connection.
    pub fn close_link(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        link.open = false;
        let when = link.down.max(self.now) + 1;
        self.schedule(when, Event::DownEnd(id));
    }

    /// A daemon has crashed: its peers notice soon.
    pub fn break_links_to(&mut self, node: usize) {
        let ids: Vec<LinkId> = self.links.keys().copied().collect();
        for id in ids {
            if self.links[&id].node == node {
                let when = self.now + self.random.below(5 * MS);
                self.schedule(when, Event::DownEnd(id));
            }
        }
    }

    /// A machine has crashed: daemons notice sooner or later.
    pub fn break_links_from(&mut self, place: MachineId) {
        let ids: Vec<LinkId> = self.links.keys().copied().collect();
        for id in ids {
            let delay = self.random.below(3000) * MS;
            let Some(link) = self.links.get_mut(&id).filter(|link| link.from == place) else {
                continue;
            };
            (link.whole, link.waiting) = (false, None);
            let when = link.up.max(self.now + delay);
            self.schedule(when, Event::UpEnd(id));
        }
    }
}

/// The event that an actor has waited for.
#[derive(Clone, Debug)]
pub enum Wake {
    Slept,
    Linked(LinkId),
    Refused,
    Said(SimReply),
    Reset,
    Late,
}

impl Wake {
    pub fn turn(self) -> Turn {
        match self {
            Wake::Slept => Turn::Go,
            Wake::Linked(id) => Turn::Linked(Ok(id)),
            Wake::Refused => Turn::Linked(Err(io::ErrorKind::ConnectionRefused.into())),
            Wake::Said(said) => Turn::Said(Ok(said)),
            Wake::Reset => Turn::Said(Err(io::ErrorKind::ConnectionReset.into())),
            Wake::Late => Turn::Said(Err(io::ErrorKind::WouldBlock.into())),
        }
    }
}
