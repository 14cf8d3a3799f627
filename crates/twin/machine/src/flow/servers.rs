//! The servers of all phases as links.
//!
//! A server has a link for each part that can limit it: dispatch, data paths, threads, links of its node,
//! flash. Phases that differ in access or in the size of requests need different times of a part for a byte,
//! so that each phase crosses a part's link with a share of its own. A part that never takes longer than
//! another one limits nothing, and has no link.

use super::fabric::{Path, Resource};
use super::flash_queue::FlashQueue;
use super::links::Links;
use super::parts::Part;
use forebay_flow::LinkId;
use rustc_hash::FxHashMap;

/// The load that the phases of one kind, of one job and with one access, put on a server.
pub(super) struct ServerUse {
    pub parts: Vec<Part>,
    pub flash: Option<FlashQueue>,
}

/// A part with a link at each server.
struct LimitingPart {
    resource: Resource,
    name: &'static str,
    /// Rate for the first use that has the part, bytes per second.
    rate: f64,
    /// By use: the part's time for a byte, as a multiple of that for the first use; 0 without the part.
    costs: Vec<f64>,
}

/// A server.
struct Server {
    /// By limiting part.
    links: Vec<LinkId>,
    /// Processes at it by use, by their shares of bytes.
    processes: Vec<f64>,
}

/// The servers of a simulation.
pub(super) struct Servers {
    uses: Vec<ServerUse>,
    parts: Vec<LimitingPart>,
    servers: Vec<Server>,
    /// Index of a server by its key.
    by_key: FxHashMap<u32, u32>,
    /// Limits of the rate of a job at a server, by job and server.
    limits: FxHashMap<(u8, u32), LinkId>,
}

impl Servers {
    /// No servers yet, of the given uses.
    ///
    /// # Panics
    /// If there is no use.
    pub fn new(uses: Vec<ServerUse>) -> Servers {
        assert!(!uses.is_empty(), "servers without a use");
        Servers {
            parts: limiting_parts(&uses),
            uses,
            servers: Vec::new(),
            by_key: FxHashMap::default(),
            limits: FxHashMap::default(),
        }
    }

    /// The index of the server with a key, which is added if it is new. `name` is its name in results.
    pub fn add(&mut self, key: u32, name: &str, links: &mut Links) -> u32 {
        let (parts, uses) = (&self.parts, self.uses.len());
        let servers = &mut self.servers;
        *self.by_key.entry(key).or_insert_with(|| {
            let link = |part: &LimitingPart| {
                links.add(part.resource, format!("{} of {name}", part.name), part.rate)
            };
            let links = parts.iter().map(link).collect();
            servers.push(Server { links, processes: vec![0.0; uses] });
            servers.len() as u32 - 1
        })
    }

    /// Limits the rate of a job at a server, bytes per second.
    pub fn add_limit(&mut self, (job, server): (u8, u32), rate: f64, links: &mut Links) {
        let name = || format!("the rate limit of I/O job {job}");
        let limit = self.limits.entry((job, server));
        limit.or_insert_with(|| links.add(Resource::Server, name(), rate));
    }

    /// The link of the first part of a server: with one use, its only one.
    pub fn first_link(&self, server: u32) -> LinkId {
        self.servers[server as usize].links[0]
    }

    /// Adds the links of a server for a share of the bytes of a flow of a job.
    pub fn add_path(
        &self,
        (job, of_use): (u8, usize),
        (server, share): (u32, f64),
        path: &mut Path,
    ) {
        let links = &self.servers[server as usize].links;
        for (part, link) in self.parts.iter().zip(links) {
            let cost = part.costs[of_use];
            if cost > 0.0 {
                path.push((*link, share * cost));
            }
        }
        path.extend(self.limits.get(&(job, server)).map(|link| (*link, share)));
    }

    /// The rate at which a server can serve a use, bytes per second.
    pub fn rate(&self, of_use: usize, server: u32, links: &Links) -> f64 {
        let parts = self.parts.iter().zip(&self.servers[server as usize].links);
        let of_part = |(part, link): (&LimitingPart, &LinkId)| {
            let capacity = links.transport.solver().capacity(*link);
            if part.costs[of_use] > 0.0 { capacity / part.costs[of_use] } else { f64::INFINITY }
        };
        parts.map(of_part).fold(f64::INFINITY, f64::min)
    }

    /// Processes at a server, by their shares of bytes.
    pub fn processes(&self, server: u32) -> f64 {
        self.servers[server as usize].processes.iter().sum()
    }

    /// Adds `share` of a process to those at a server.
    pub fn enter(&mut self, of_use: usize, (server, share): (u32, f64), links: &mut Links) {
        self.servers[server as usize].processes[of_use] += share;
        self.limit_flash(server, links);
    }

    /// Takes `share` of a process from those at a server.
    pub fn leave(&mut self, of_use: usize, (server, share): (u32, f64), links: &mut Links) {
        let processes = &mut self.servers[server as usize].processes[of_use];
        *processes = (*processes - share).max(0.0);
        self.limit_flash(server, links);
    }

    /// Whether waits at the flash are a large part of the time of a use's transfers, with this number of
    /// processes at a server.
    pub fn is_flash_limit(&mut self, of_use: usize, processes: f64) -> bool {
        let flash = self.uses[of_use].flash.as_mut();
        flash.is_none_or(|flash| flash.is_limit(processes))
    }

    /// Gives a server the rate of its flash that the processes at it can reach.
    fn limit_flash(&mut self, server: u32, links: &mut Links) {
        let Server { links: own, processes } = &self.servers[server as usize];
        if self.uses.iter().all(|of_use| of_use.flash.is_none()) {
            return;
        }
        let all: f64 = processes.iter().sum();
        if let [only] = self.uses.as_mut_slice() {
            let Some(flash) = &mut only.flash else { return };
            let used = flash.used(all);
            let rate = |part: &Part| match part.resource {
                Resource::Ssd => part.rate * used,
                _ => part.rate,
            };
            let least = only.parts.iter().map(rate).fold(f64::INFINITY, f64::min);
            if least > 0.0 {
                links.transport.set_capacity(own[0], least);
            }
            return;
        }
        // The mean of the uses, by their processes.
        let (mut used, mut count) = (0.0, 0.0);
        for (of_use, here) in self.uses.iter_mut().zip(processes).filter(|(_, here)| **here > 0.0) {
            used += here * of_use.flash.as_mut().map_or(1.0, |flash| flash.used(all));
            count += here;
        }
        for (part, link) in self.parts.iter().zip(own) {
            if part.resource == Resource::Ssd && used > 0.0 {
                links.transport.set_capacity(*link, part.rate * used / count);
            }
        }
    }
}

/// The parts that can limit a server, each at least for one mixture of the uses.
fn limiting_parts(uses: &[ServerUse]) -> Vec<LimitingPart> {
    let mut names: Vec<(Resource, &'static str)> = Vec::new();
    for part in uses.iter().flat_map(|of_use| &of_use.parts) {
        if !names.contains(&(part.resource, part.name)) {
            names.push((part.resource, part.name));
        }
    }
    // Seconds for a byte, by use.
    let times = |&(resource, name): &(Resource, &'static str)| -> Vec<f64> {
        let of_use = |of_use: &ServerUse| {
            let same = |part: &&Part| part.resource == resource && part.name == name;
            of_use.parts.iter().find(same).map_or(0.0, |part| 1.0 / part.rate)
        };
        uses.iter().map(of_use).collect()
    };
    let all: Vec<Vec<f64>> = names.iter().map(times).collect();
    let is_slower = |other: usize, part: usize| {
        let each = || all[other].iter().zip(&all[part]);
        each().all(|(a, b)| a >= b) && (other < part || each().any(|(a, b)| a > b))
    };
    // The rate of the flash changes with the processes at it.
    let varies = uses.len() > 1 && uses.iter().any(|of_use| of_use.flash.is_some());
    let is_needed = |part: &usize| {
        let is_varied = varies && names[*part].0 == Resource::Ssd;
        is_varied || !(0..all.len()).any(|other| other != *part && is_slower(other, *part))
    };
    let limiting = |part: usize| {
        let first = all[part].iter().copied().find(|time| *time > 0.0);
        let first = first.unwrap_or_else(|| unreachable!("a part that no use has"));
        LimitingPart {
            resource: names[part].0,
            name: names[part].1,
            rate: 1.0 / first,
            costs: all[part].iter().map(|time| time / first).collect(),
        }
    };
    (0..all.len()).filter(is_needed).map(limiting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &'static str, rate: f64) -> Part {
        let resource = if name == "flash" { Resource::Ssd } else { Resource::Server };
        Part { resource, name, rate }
    }

    fn of(parts: &[(&'static str, f64)]) -> ServerUse {
        ServerUse {
            parts: parts.iter().map(|(name, rate)| part(name, *rate)).collect(),
            flash: None,
        }
    }

    fn names(uses: &[ServerUse]) -> Vec<&'static str> {
        limiting_parts(uses).iter().map(|part| part.name).collect()
    }

    #[test]
    fn one_use_has_its_slowest_part_only() {
        assert_eq!(names(&[of(&[("dispatch", 8.0), ("in", 4.0), ("flash", 2.0)])]), ["flash"]);
        assert_eq!(names(&[of(&[("dispatch", 2.0), ("flash", 2.0)])]), ["dispatch"]);
    }

    /// A write of x and a read of y take x/3 + y/1.5 of dispatch, which is full at x = 2, y = 0.5, while flash
    /// takes 2/2 of the write and the threads 0.5/1 of the read.
    #[test]
    fn part_that_only_a_mixture_fills_has_a_link() {
        let uses = [
            of(&[("dispatch", 3.0), ("flash", 2.0)]),
            of(&[("dispatch", 1.5), ("threads", 1.0), ("out", 1.2)]),
        ];
        assert_eq!(names(&uses), ["dispatch", "flash", "threads"]);
    }

    /// Equal flows of two uses: of 6 bytes a second, one that takes the part for twice as long a byte gets
    /// as many as the other, 2 bytes a second.
    #[test]
    fn uses_share_the_time_of_a_part() {
        let mut links = Links::new();
        let mut servers = Servers::new(vec![of(&[("flash", 6.0)]), of(&[("flash", 3.0)])]);
        let server = servers.add(7, "node 7", &mut links);
        assert_eq!(servers.add(7, "node 7", &mut links), server);
        let flows: Vec<_> = (0..2)
            .map(|of_use| {
                let mut path = Path::new();
                servers.add_path((0, of_use), (server, 1.0), &mut path);
                let spec = forebay_flow::FlowSpec { count: 1, weight: 1.0, cap: 9.0, path: &path };
                links.transport.start(spec, 1.0)
            })
            .collect();
        links.transport.update_rates();
        let rates: Vec<f64> =
            flows.iter().map(|flow| links.transport.solver().rate(*flow)).collect();
        assert!(rates.iter().all(|rate| (rate - 2.0).abs() < 1e-9), "{rates:?}");
        assert!((servers.rate(1, server, &links) - 3.0).abs() < 1e-9);
    }
}
