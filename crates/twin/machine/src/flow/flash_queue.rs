//! Waits of processes that meet at a controller of a server's flash.
//!
//! A process whose transfers are shorter than a flash stripe stays at one controller for several calls.
//! Others may be there at the same time while another controller is idle, so that a server reaches the
//! rate of its flash only with more processes than would keep all controllers busy in turn. The model is
//! a closed network of one station for each controller, which each command visits at random: mean value
//! analysis (Reiser, Lavenberg, J. ACM 1980), for commands of equal length, so that the one in service is
//! half done on average when another arrives. It gives the rate of a server by the number of processes at
//! it, which is the capacity of the server's link as long as they are there.

use crate::io::{IoJob, Ssd};
use forebay_workload::ior::Access;

/// Share of waiting in a transfer's time from which flash is said to limit a process.
const LIMITS_FROM: f64 = 0.15;

/// The use that processes make of the flash of one server.
pub(super) struct FlashQueue {
    controllers: f64,
    /// Time of a command on its controller, ps.
    command: f64,
    /// Time of a call without its command, ps.
    elsewhere: f64,
    /// Use of the controllers, 0 to 1, by the number of processes at the server.
    used: Vec<f64>,
    /// Commands at a controller with the last number of processes.
    queue: f64,
}

impl FlashQueue {
    /// For the transfers of a phase, of which a lone one takes `lone` ps; `None` where processes do not meet
    /// so: with one controller, commands that leave room for another on the same controller, transfers of
    /// more than half a flash stripe, or writes that end in the page cache.
    pub fn of(job: &IoJob, access: Access, lone: f64) -> Option<FlashQueue> {
        let make = &job.burst_buffer;
        let is_write = access == Access::Write;
        let bytes = job.pattern.transfer_bytes();
        let controllers = make.cards * make.controllers_per_card;
        let (width, time) = Ssd::new(make).command(bytes, is_write);
        let is_cached = is_write && make.dirty_limit.0 > 0;
        let leaves_room = 2 * width <= u64::from(make.channels_per_controller);
        if controllers < 2 || is_cached || leaves_room || 2 * bytes > make.flash_stripe.0 {
            return None;
        }
        Some(FlashQueue::new(controllers.into(), time as f64, lone))
    }

    fn new(controllers: f64, command: f64, lone: f64) -> FlashQueue {
        let elsewhere = (lone - command).max(0.0);
        FlashQueue { controllers, command, elsewhere, used: vec![0.0], queue: 0.0 }
    }

    /// Most use of all controllers together, 0 to 1, with a number of processes at the server.
    pub fn used(&mut self, processes: f64) -> f64 {
        let processes = processes.round().max(0.0) as usize;
        while self.used.len() <= processes {
            let (count, last) = (self.used.len() as f64, self.used[self.used.len() - 1]);
            let there = self.command * (1.0 + self.queue - last / 2.0);
            let rate = count / (self.elsewhere + there) / self.controllers;
            self.queue = rate * there;
            self.used.push((rate * self.command).min(1.0));
        }
        self.used[processes]
    }

    /// Whether the waits at the flash are a share of the time of calls that makes it their limit.
    pub fn is_limit(&mut self, processes: f64) -> bool {
        let alone = self.elsewhere + self.command;
        let together =
            processes.round() * self.command / self.controllers / self.used(processes).max(1e-9);
        together - alone > LIMITS_FROM * together
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two controllers, commands of 272 us, calls of 397 us. The first process uses 272 / 397 / 2 = 34% of
    /// the controllers; the second waits for half of its command at the one where they meet, 272 x 0.34 / 2
    /// = 46.6 us, so that both use 2 x 272 / (397 + 46.6) / 2 = 61%.
    #[test]
    fn second_process_waits_for_half_of_a_command_where_it_meets_the_first() {
        let mut queue = FlashQueue::new(2.0, 272.0, 397.0);
        assert_eq!(queue.used(0.0), 0.0);
        assert!((queue.used(1.0) - 0.3426).abs() < 0.0001, "{}", queue.used(1.0));
        assert!((queue.used(2.0) - 0.6132).abs() < 0.0001, "{}", queue.used(2.0));
        // 46.6 of 443.6 us, 11%; with a third process 112 of 509 us, 22%.
        assert!(!queue.is_limit(1.0) && !queue.is_limit(2.0) && queue.is_limit(3.0));
    }

    /// The use of m controllers tends to n / (n - 1 + m / 2).
    #[test]
    fn many_processes_come_near_the_rate_of_all_controllers_and_never_exceed_it() {
        let mut queue = FlashQueue::new(4.0, 300.0, 900.0);
        for processes in 1..200 {
            let used = queue.used(f64::from(processes));
            let limit = f64::from(processes) / (f64::from(processes) + 1.0);
            assert!(used <= 1.0, "{processes}: {used}");
            assert!(processes < 40 || (used / limit - 1.0).abs() < 0.01, "{processes}: {used}");
        }
    }
}
