//! Faults of the hosts and daemons of a site, one after another, each ended before the next round.

use std::time::Duration;

use forebay_random::RandomSequence;

use crate::cluster::clock::TestClock;
use crate::cluster::site::{ROOT, Site, expect_success};
use crate::cluster::{Daemon, built_program, wait_until};

/// Number of hosts.
pub const HOSTS: usize = 3;

/// A daemon of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Controller,
    Storage(usize),
    Agent(usize),
}

/// A fault, and the time for which it lasts.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Killed, and started after the time.
    Kill(Role),
    /// Ended by SIGTERM, and started after the time.
    Restart(Role),
    /// Suspended with SIGSTOP.
    Suspend(Role),
    /// Cut off from all other hosts.
    Isolate(usize),
    /// Two hosts that do not reach each other.
    Partition(usize, usize),
    /// No space in the file system of a storage node's directory.
    FillDisk(usize),
    /// The realtime clock of a host's daemons is ahead by these seconds, until the round ends.
    StepClock(usize, i64),
}

impl Fault {
    /// A fault by chance.
    pub fn random(random: &mut RandomSequence) -> Fault {
        let mut below = |limit: u32| random.below(limit) as usize;
        let host = below(HOSTS as u32);
        let role = match below(6) {
            0 => Role::Controller,
            1 | 2 => Role::Agent(host),
            _ => Role::Storage(host),
        };
        match below(8) {
            0 | 1 => Fault::Kill(role),
            2 => Fault::Restart(role),
            3 => Fault::Suspend(role),
            4 => Fault::Isolate(host),
            5 => Fault::Partition(host, (host + 1 + below(HOSTS as u32 - 1)) % HOSTS),
            6 => Fault::FillDisk(host),
            _ => Fault::StepClock(host, if below(2) == 0 { 3600 } else { -3600 }),
        }
    }

    /// Whether both can happen at the same time: they concern different daemons, or not the same part
    /// of the hosts.
    pub fn is_independent_of(self, other: Fault) -> bool {
        let role = |fault| match fault {
            Fault::Kill(role) | Fault::Restart(role) | Fault::Suspend(role) => Some(role),
            _ => None,
        };
        match (role(self), role(other)) {
            (Some(one), Some(other)) => one != other,
            (None, None) => std::mem::discriminant(&self) != std::mem::discriminant(&other),
            _ => true,
        }
    }

    /// Kind of the fault, for the table.
    pub fn kind(self) -> &'static str {
        match self {
            Fault::Kill(Role::Controller) => "kill controller",
            Fault::Kill(Role::Storage(_)) => "kill storage daemon",
            Fault::Kill(Role::Agent(_)) => "kill agent",
            Fault::Restart(Role::Controller) => "restart controller",
            Fault::Restart(Role::Storage(_)) => "restart storage daemon",
            Fault::Restart(Role::Agent(_)) => "restart agent",
            Fault::Suspend(Role::Controller) => "suspend controller",
            Fault::Suspend(Role::Storage(_)) => "suspend storage daemon",
            Fault::Suspend(Role::Agent(_)) => "suspend agent",
            Fault::Isolate(_) => "isolate host",
            Fault::Partition(..) => "partition two hosts",
            Fault::FillDisk(_) => "fill disk",
            Fault::StepClock(..) => "step clock",
        }
    }
}

/// A site whose faults can be caused and ended.
pub struct FaultySite {
    pub site: Site,
    /// Of each host.
    clocks: Vec<TestClock>,
}

impl FaultySite {
    /// A site with a small file system for each storage node, and clocks that can be stepped.
    pub fn new() -> FaultySite {
        let site = Site::new();
        let pfs = site.cluster.pfs();
        let directory = pfs.parent().unwrap();
        let clocks = (0..HOSTS).map(|host| TestClock::new(directory, &host.to_string()));
        let clocks = clocks.collect();
        let mut faulty = FaultySite { site, clocks };
        for host in 0..HOSTS {
            faulty.stop(Role::Storage(host));
            expect_success(&faulty.site.host(host).shell(
                ROOT,
                "mkdir disk && mount -t tmpfs -o size=1g tmpfs disk && cp -a flash/. disk/ && \
                 chmod 711 disk && mount --move disk flash && rmdir disk",
            ));
            faulty.start(Role::Storage(host));
            faulty.stop(Role::Agent(host));
            faulty.start(Role::Agent(host));
        }
        faulty.stop(Role::Controller);
        faulty.start(Role::Controller);
        faulty
    }

    fn daemon(&mut self, role: Role) -> &mut Daemon {
        match role {
            Role::Controller => &mut self.site.controller,
            Role::Storage(host) => &mut self.site.storage[host],
            Role::Agent(host) => &mut self.site.agents[host],
        }
    }

    fn stop(&mut self, role: Role) {
        self.daemon(role).stop();
    }

    fn start(&mut self, role: Role) {
        let (name, host) = match role {
            Role::Controller => ("controller", 0),
            Role::Storage(host) => ("storage", host),
            Role::Agent(host) => ("agent", host),
        };
        let program = built_program("forebayd");
        let host_of_role = self.site.host(host);
        let mut command = host_of_role.command(ROOT, program.to_str().unwrap());
        command.args([name, "--config", self.site.file()]).env("FOREBAY_LOG", "warn");
        self.clocks[host].apply(&mut command);
        let daemon = host_of_role.start_logged(name, command);
        *self.daemon(role) = daemon;
    }

    /// Sets all clocks right.
    pub fn set_clocks_right(&self) {
        for clock in &self.clocks {
            clock.set(0);
        }
    }

    fn set_link(&self, host: usize, state: &str) {
        self.site.cluster.set_link(host, state);
    }

    fn route(&self, from: usize, to: usize, action: &str) {
        let address = &self.site.host(to).address;
        let line = format!("ip route {action} blackhole {address}/32");
        expect_success(&self.site.host(from).shell(ROOT, &line));
    }

    /// Causes a fault.
    pub fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(role) => self.daemon(role).kill(),
            Fault::Restart(role) => self.stop(role),
            Fault::Suspend(role) => self.daemon(role).suspend(),
            Fault::Isolate(host) => self.set_link(host, "down"),
            Fault::Partition(one, other) => {
                self.route(one, other, "add");
                self.route(other, one, "add");
            }
            Fault::FillDisk(host) => {
                // `dd` ends when the file system is full.
                let fill = "dd if=/dev/zero of=flash/filler bs=1M status=none || true";
                expect_success(&self.site.host(host).shell(ROOT, fill));
            }
            Fault::StepClock(host, seconds) => self.clocks[host].set(seconds),
        }
    }

    /// Ends a fault, except for the step of a clock.
    pub fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(role) | Fault::Restart(role) => self.start(role),
            Fault::Suspend(role) => self.daemon(role).resume(),
            Fault::Isolate(host) => self.set_link(host, "up"),
            Fault::Partition(one, other) => {
                self.route(one, other, "del");
                self.route(other, one, "del");
            }
            Fault::FillDisk(host) => {
                expect_success(&self.site.host(host).shell(ROOT, "rm -f flash/filler"));
            }
            // It lasts: a daemon must not wait for its time to come.
            Fault::StepClock(..) => {}
        }
    }

    /// All daemons' roles and processes.
    pub fn daemons(&self) -> Vec<(&'static str, u32)> {
        let storage = self.site.storage.iter().map(|daemon| ("storage", daemon.id()));
        let agents = self.site.agents.iter().map(|daemon| ("agent", daemon.id()));
        storage.chain(agents).chain([("controller", self.site.controller.id())]).collect()
    }

    /// Stops all daemons, and returns their exit codes.
    pub fn stop_all(&mut self) -> Vec<i32> {
        let site = &mut self.site;
        let daemons = site.agents.iter_mut().chain(&mut site.storage);
        daemons.chain([&mut site.controller]).map(Daemon::stop).collect()
    }

    /// Waits until all storage nodes are online and have stayed so.
    pub fn wait_until_healthy(&self) {
        wait_until("all storage nodes are online", || {
            let status = self.site.status()?;
            let nodes = status["nodes"].as_array()?;
            nodes.iter().all(|node| node["online"] == true).then_some(())
        });
        // What a step of a clock or a partition has caused is over after some reports.
        std::thread::sleep(Duration::from_secs(2));
    }
}
