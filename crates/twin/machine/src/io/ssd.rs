//! SSD controllers: parallel flash channels, one command after another on each.

use forebay_machine_file::machine::BurstBuffer;

/// Rates of one direction of a controller.
#[derive(Clone, Copy, Debug)]
struct Direction {
    /// ps per byte on one channel, times 2^10.
    ps_per_byte: u64,
    /// Time after a command in which its channels are idle, ps.
    gap: u64,
    /// Least time a command occupies a channel, gap included, ps: from the data sheet's random
    /// operations per second.
    least: u64,
    /// Latency of a command in addition to its time on the channels, ps.
    latency: u64,
}

impl Direction {
    fn new(card_rate: u64, card_iops: u64, latency: u64, make: &BurstBuffer) -> Self {
        let channels =
            u128::from(make.controllers_per_card) * u128::from(make.channels_per_controller);
        let second = 1_000_000_000_000u128;
        Direction {
            ps_per_byte: ((second << 10) * channels).div_ceil(u128::from(card_rate.max(1))) as u64,
            least: (second * channels / u128::from(card_iops.max(1))) as u64,
            latency,
            gap: make.command_gap.0,
        }
    }

    fn time(&self, bytes: u64) -> u64 {
        (bytes * self.ps_per_byte) >> 10
    }

    /// The channels, of `channels`, to which the bytes of a command are distributed: as many as get
    /// at least the bytes of one least command each; and the time that it takes on each of them, ps.
    #[inline]
    fn spread(&self, bytes: u64, channels: usize) -> (u64, u64) {
        let whole = self.time(bytes);
        let width = (whole / self.least.max(1)).clamp(1, channels as u64);
        (width, (whole / width).max(self.least.saturating_sub(self.gap)))
    }
}

/// Completion of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub at: u64,
    /// Time until then that it waited for other commands, ps.
    pub waited: u64,
}

/// The controllers of one node.
pub(crate) struct Ssd {
    write: Direction,
    read: Direction,
    channels: usize,
    /// Time at which each channel is free, controller by controller, ps.
    free: Vec<u64>,
    /// Channel at which the next short command of each controller begins.
    next: Vec<usize>,
    /// Sum of the channels' times for all commands so far, ps.
    busy: u64,
}

impl Ssd {
    pub fn new(make: &BurstBuffer) -> Self {
        let controllers = (make.cards * make.controllers_per_card) as usize;
        let channels = make.channels_per_controller as usize;
        Ssd {
            write: Direction::new(
                make.card_write.0,
                make.card_write_iops,
                make.write_latency.0,
                make,
            ),
            read: Direction::new(make.card_read.0, make.card_read_iops, make.read_latency.0, make),
            channels,
            free: vec![0; controllers * channels],
            next: vec![0; controllers],
            busy: 0,
        }
    }

    /// Channel time spent up to `now`, ps: without what commands take in the future, which follow
    /// each other without gaps.
    pub fn busy_until(&self, now: u64) -> u64 {
        self.busy - self.free.iter().map(|free| free.saturating_sub(now)).sum::<u64>()
    }

    fn direction(&self, write: bool) -> Direction {
        if write { self.write } else { self.read }
    }

    /// Share of the time of all channels of the node that a command takes, ps.
    pub fn share_of_node(&self, bytes: u64, write: bool) -> f64 {
        let direction = self.direction(write);
        let (width, share) = direction.spread(bytes, self.channels);
        ((share + direction.gap) * width) as f64 / self.free.len() as f64
    }

    /// Channels of its controller that a command takes, and for how long, ps.
    pub fn command(&self, bytes: u64, write: bool) -> (u64, u64) {
        let direction = self.direction(write);
        let (width, share) = direction.spread(bytes, self.channels);
        (width, share + direction.gap)
    }

    /// Time of a command that does not wait, ps.
    pub fn time_alone(&self, bytes: u64, write: bool) -> u64 {
        let direction = self.direction(write);
        direction.spread(bytes, self.channels).1 + direction.latency
    }

    /// Submits a command to a controller, whose channels work on it in parallel.
    pub fn submit(&mut self, controller: usize, bytes: u64, write: bool, now: u64) -> Completion {
        let direction = self.direction(write);
        let (width, share) = direction.spread(bytes, self.channels);
        let first = self.next[controller];
        self.next[controller] = (first + width as usize) % self.channels;
        let mut through = 0;
        for i in 0..width as usize {
            let channel = controller * self.channels + (first + i) % self.channels;
            let end = self.free[channel].max(now) + share;
            self.free[channel] = end + direction.gap;
            through = through.max(end);
        }
        self.busy += (share + direction.gap) * width;
        Completion { at: through + direction.latency, waited: through - now - share }
    }

    /// Submits commands, each of a controller and bytes, and waits for all.
    pub fn submit_all(
        &mut self,
        commands: impl Iterator<Item = (usize, u64)>,
        write: bool,
        now: u64,
    ) -> Completion {
        let done = commands.map(|(controller, bytes)| self.submit(controller, bytes, write, now));
        done.max_by_key(|done| done.at).unwrap_or(Completion { at: now, waited: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_machine_file::machine::Machine;

    const US: u64 = 1_000_000;

    fn p3608() -> Ssd {
        let mut make = Machine::load("trinity").unwrap().burst_buffer.unwrap();
        make.command_gap.0 = 0;
        Ssd::new(&make)
    }

    /// For one card without gaps between commands.
    #[test]
    fn sequential_and_random_rates_equal_the_data_sheet() {
        for (write, rate, iops) in [(true, 3.0e9, 150e3), (false, 5.0e9, 850e3)] {
            for (bytes, expected) in [(512 * 1024, rate / 524_288.0), (4096, iops)] {
                let mut ssd = p3608();
                let commands = 40_000;
                let end =
                    (0..commands).map(|i| ssd.submit(i % 2, bytes, write, 0).at).max().unwrap();
                let measured = commands as f64 * 1e12 / end as f64;
                assert!(
                    (measured / expected - 1.0).abs() < 0.01,
                    "{write} {bytes}: {measured} not {expected}"
                );
            }
        }
    }

    #[test]
    fn lone_command_does_not_wait() {
        let mut ssd = p3608();
        let done = ssd.submit(0, 524_288, true, 7 * US);
        assert_eq!(done.waited, 0);
        // 512 KiB at 1.5 GB/s is 349.5 us, and 20 us of latency.
        assert!((done.at - 7 * US).abs_diff(369_525_333) < 1_000, "{done:?}");
        let second = ssd.submit(0, 524_288, true, 7 * US);
        assert!((second.waited).abs_diff(349_525_333) < 1_000, "{second:?}");
    }
}
