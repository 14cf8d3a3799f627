//! Times of stages: a stream of bytes whose parts cross several resources.

use forebay_units::human;

/// The way in which a system stages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Staging {
    /// All storage nodes of an instance stage their own stripes at the same time, as DataWarp's servers
    /// do.
    Parallel(ParallelRates),
    /// One storage node moves the files of a stage, as Forebay's mover does: its own stripes stay on the
    /// node, the others cross its link.
    Mover(MoverRates),
}

/// Rates of a machine, bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParallelRates {
    /// Flash of a storage node, writing.
    pub flash_write: f64,
    /// Flash of a storage node, reading.
    pub flash_read: f64,
    /// Data path of a storage node's server.
    pub data_path: f64,
    /// Link of a storage node.
    pub link: f64,
    /// All routers to the parallel file system together; infinite if the machine has none.
    pub routers: f64,
    /// The parallel file system at its peak.
    pub pfs: f64,
    /// Its targets; `None` if the machine file does not describe them.
    pub targets: Option<TargetRates>,
}

/// Storage targets of a parallel file system. A file is staged by those over which it is striped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetRates {
    /// All targets.
    pub count: u32,
    /// Targets of a file, by default.
    pub stripe_count: u32,
    /// Writing to a target, bytes per second.
    pub write: f64,
    /// Reading from a target, bytes per second.
    pub read: f64,
}

impl TargetRates {
    /// Targets of `files` files, which are taken in turn; `None`: of as many files as there are targets.
    fn of_files(&self, files: Option<u64>) -> f64 {
        let count = u64::from(self.count);
        let used = files.map_or(count, |files| files.saturating_mul(self.stripe_count.into()));
        used.clamp(1, count.max(1)) as f64
    }
}

/// Rates of a pool, bytes per second, as they were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoverRates {
    /// Time of a stage-in besides that of its data, seconds.
    pub fixed_in: f64,
    /// Time of a stage-out besides that of its data, seconds.
    pub fixed_out: f64,
    /// Disk of a storage node, writing, with the sync.
    pub disk_write: f64,
    /// Stage-out of an instance on one storage node, with reading back if stage-outs are read back.
    pub stage_out: f64,
    /// Reading on another host what a storage node has.
    pub read: f64,
    /// Link of a storage node, sending to another.
    pub link: f64,
    /// Reading from the parallel file system on a storage node.
    pub pfs_read: f64,
    /// Whether stage-ins are read back and compared.
    pub read_back_in: bool,
    /// Whether stage-outs are.
    pub read_back_out: bool,
}

/// Data of a file on one node that the storage daemon holds in memory before it asks the kernel to write them
/// back.
pub(crate) const WRITEBACK_BYTES: u64 = 8 << 20;

/// A resource of a stage: its name, its rate, and the share of the bytes that cross it.
type Part = (&'static str, f64, f64);

/// The slowest of the parts: seconds for each byte, and its name.
fn slowest(parts: &[Part]) -> (f64, &'static str) {
    let of = |(name, rate, share): &Part| (share / rate, *name);
    parts
        .iter()
        .map(of)
        .fold((0.0, "nothing"), |most, next| if next.0 > most.0 { next } else { most })
}

impl Staging {
    /// Seconds of a stage-in of `bytes` in `files` (`None`: many) to an instance on `nodes` storage nodes,
    /// and the limiting resource with its rate.
    pub(crate) fn stage_in(&self, (bytes, files): (u64, Option<u64>), nodes: u32) -> (f64, String) {
        match self {
            Staging::Parallel(rates) => {
                let targets = rates.targets.map(|targets| targets.read * targets.of_files(files));
                timed(bytes, &rates.parts(rates.flash_write, targets, nodes), None, 0.0)
            }
            Staging::Mover(rates) => {
                let each = 1.0 / f64::from(nodes.max(1));
                let fixed =
                    rates.fixed_in + rates.waits_of_disks((bytes, files.unwrap_or(1)), nodes);
                let disks = ("disks' writing", rates.disk_write, each);
                let from = ("parallel file system's reading", rates.pfs_read, 1.0);
                let back = [("reading back", rates.read.min(rates.link), 1.0)];
                let back = rates.read_back_in.then_some(&back[..]);
                let link = rates.own_link(rates.link, nodes);
                timed(bytes, &[disks, link, from], back, fixed)
            }
        }
    }

    /// Seconds of a stage-out of `bytes` in `files` (`None`: many), and the limiting resource with its rate.
    pub(crate) fn stage_out(
        &self,
        (bytes, files): (u64, Option<u64>),
        nodes: u32,
    ) -> (f64, String) {
        match self {
            Staging::Parallel(rates) => {
                let targets = rates.targets.map(|targets| targets.write * targets.of_files(files));
                timed(bytes, &rates.parts(rates.flash_read, targets, nodes), None, 0.0)
            }
            Staging::Mover(rates) => {
                // The measured stage-out contains the reading.
                let reading = if rates.read_back_out { 1.0 / rates.pfs_read } else { 0.0 };
                let copying = (1.0 / rates.stage_out - reading).max(f64::MIN_POSITIVE);
                let whole = ("moving node", 1.0 / copying, 1.0);
                let back = [("reading back", rates.pfs_read, 1.0)];
                let back = rates.read_back_out.then_some(&back[..]);
                timed(bytes, &[whole, rates.own_link(rates.read, nodes)], back, rates.fixed_out)
            }
        }
    }
}

impl ParallelRates {
    /// The parts of a stage; `targets` is the rate of those of its files.
    fn parts(&self, flash: f64, targets: Option<f64>, nodes: u32) -> [Part; 6] {
        let each = 1.0 / f64::from(nodes.max(1));
        [
            ("storage nodes' flash", flash, each),
            ("storage nodes' data paths", self.data_path, each),
            ("storage nodes' links", self.link, each),
            ("routers to the parallel file system", self.routers, 1.0),
            ("storage targets of the files", targets.unwrap_or(f64::INFINITY), 1.0),
            ("parallel file system's peak rate", self.pfs, 1.0),
        ]
    }
}

impl MoverRates {
    /// Seconds for which disks wait for the link during a stage-in. A storage node starts writing back when it
    /// has [`WRITEBACK_BYTES`] of a file, and a file is synced before its thread begins another. Disks and link
    /// together take their sum at most.
    fn waits_of_disks(&self, (bytes, files): (u64, u64), nodes: u32) -> f64 {
        if nodes < 2 || files == 0 {
            return 0.0;
        }
        let on_each = bytes as f64 / files as f64 / f64::from(nodes);
        let first = on_each.min(WRITEBACK_BYTES as f64);
        let shorter = bytes as f64
            * (1.0 / f64::from(nodes) / self.disk_write)
                .min((1.0 - 1.0 / f64::from(nodes)) / self.link);
        (files as f64 * first / self.link).min(shorter)
    }

    /// The link of the moving node, which carries the stripes of the other nodes.
    fn own_link(&self, rate: f64, nodes: u32) -> Part {
        let others = 1.0 - 1.0 / f64::from(nodes.max(1));
        ("link of the moving node", rate, others)
    }
}

/// The time of a copy, and of the reading that follows it; `fixed` seconds do not depend on the data.
fn timed(bytes: u64, copy: &[Part], read_back: Option<&[Part]>, fixed: f64) -> (f64, String) {
    if bytes == 0 {
        return (0.0, String::new());
    }
    let (copying, limit) = slowest(copy);
    let reading = read_back.map_or(0.0, |parts| slowest(parts).0);
    let rate = format!("{} GB/s", human::number(1e-9 / copying));
    let share = match reading > 0.0 {
        true => format!(", then reading back for {}", human::seconds(reading * bytes as f64)),
        false => String::new(),
    };
    (fixed + (copying + reading) * bytes as f64, format!("{limit}: {rate}{share}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARALLEL: ParallelRates = ParallelRates {
        flash_write: 2e9,
        flash_read: 4e9,
        data_path: 3e9,
        link: 8e9,
        routers: f64::INFINITY,
        pfs: 10e9,
        targets: None,
    };

    /// Two nodes write 4 GB/s together, and read at the 6 GB/s of their data paths; of eight, the
    /// parallel file system's 10 GB/s are the limit.
    #[test]
    fn parallel_stage_is_limited_by_nodes_or_file_system() {
        let staging = Staging::Parallel(PARALLEL);
        let bytes = 60_000_000_000;
        let takes = |time: f64, expected: f64| assert!((time - expected).abs() < 1e-9, "{time} s");
        takes(staging.stage_in((bytes, Some(1)), 2).0, 15.0);
        assert!(staging.stage_in((bytes, Some(1)), 2).1.starts_with("storage nodes' flash: "));
        takes(staging.stage_out((bytes, None), 2).0, 10.0);
        assert!(staging.stage_out((bytes, None), 2).1.starts_with("storage nodes' data paths: "));
        takes(staging.stage_in((bytes, Some(1)), 8).0, 6.0);
        assert!(
            staging
                .stage_in((bytes, Some(1)), 8)
                .1
                .starts_with("parallel file system's peak rate: ")
        );
        assert_eq!(staging.stage_in((0, Some(0)), 8), (0.0, String::new()));
    }

    /// Eight nodes move 16 GB/s and more; ten targets of 0.5 GB/s write 5 GB/s, of which a file with two
    /// stripes has 1 GB/s. They read 0.75 GB/s each: 1.5 GB/s for one file, 6 GB/s for four files.
    #[test]
    fn files_are_staged_by_the_targets_that_they_are_striped_over() {
        let targets = TargetRates { count: 10, stripe_count: 2, write: 0.5e9, read: 0.75e9 };
        let staging = Staging::Parallel(ParallelRates { targets: Some(targets), ..PARALLEL });
        let bytes = 60_000_000_000;
        let takes = |time: f64, expected: f64| assert!((time - expected).abs() < 1e-9, "{time} s");
        takes(staging.stage_out((bytes, None), 8).0, 12.0);
        takes(staging.stage_out((bytes, Some(1)), 8).0, 60.0);
        takes(staging.stage_out((bytes, Some(100)), 8).0, 12.0);
        takes(staging.stage_in((bytes, Some(1)), 8).0, 40.0);
        takes(staging.stage_in((bytes, Some(4)), 8).0, 10.0);
        let limit = staging.stage_in((bytes, Some(4)), 8).1;
        assert!(limit.starts_with("storage targets of the files: 6"), "{limit}");
    }

    /// 1 GB on two nodes: half of it crosses the mover's link at 100 MB/s, 5 s; each disk gets half at
    /// 60 MB/s, 8.33 s. Out: one node alone needs 4 s at 250 MB/s, of which 2 s are reading back at
    /// 500 MB/s. With two, the link's 5 s are more than the 2 s of copying, and reading back
    /// follows. A quarter and half a second do not depend on the data. The disks wait for the first
    /// 8 MiB of each file, 84 ms each, but not longer than the link's 5 s.
    #[test]
    fn mover_keeps_its_own_stripes_and_sends_the_others() {
        let staging = Staging::Mover(MoverRates {
            fixed_in: 0.25,
            fixed_out: 0.5,
            disk_write: 60e6,
            stage_out: 250e6,
            read: 100e6,
            link: 100e6,
            pfs_read: 500e6,
            read_back_in: false,
            read_back_out: true,
        });
        let bytes = 1_000_000_000;
        let (time, limit) = staging.stage_in((bytes, Some(1)), 2);
        assert!(
            (time - 8.6672).abs() < 1e-3 && limit.starts_with("disks' writing"),
            "{time} {limit}"
        );
        assert!((staging.stage_in((bytes, Some(10)), 2).0 - (8.5833 + 0.8389)).abs() < 1e-3);
        assert!((staging.stage_in((bytes, Some(1000)), 2).0 - (8.5833 + 5.0)).abs() < 1e-1);
        let (time, limit) = staging.stage_out((bytes, None), 2);
        assert!(
            (time - 7.5).abs() < 1e-9 && limit.starts_with("link of the moving"),
            "{time} {limit}"
        );
        assert!(limit.ends_with("then reading back for 2.00 s"), "{limit}");
        assert!((staging.stage_out((bytes, None), 1).0 - 4.5).abs() < 1e-9);
        assert!(staging.stage_out((bytes, None), 1).1.starts_with("moving node"));
    }
}
