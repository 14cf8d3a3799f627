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
}

/// Rates of a pool, bytes per second, as they were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoverRates {
    /// Disk of a storage node, writing, with the sync.
    pub disk_write: f64,
    /// Disk of a storage node, reading.
    pub disk_read: f64,
    /// Link of a storage node, in each direction.
    pub link: f64,
    /// Reading from the parallel file system on a storage node.
    pub pfs_read: f64,
    /// Writing to the parallel file system on a storage node, with the sync.
    pub pfs_write: f64,
    /// Whether stage-ins are read back and compared.
    pub read_back_in: bool,
    /// Whether stage-outs are.
    pub read_back_out: bool,
}

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
    /// Seconds of a stage-in of `bytes` to an instance on `nodes` storage nodes, and the limiting resource
    /// with its rate.
    pub(crate) fn stage_in(&self, bytes: u64, nodes: u32) -> (f64, String) {
        match self {
            Staging::Parallel(rates) => timed(bytes, &rates.parts(rates.flash_write, nodes), None),
            Staging::Mover(rates) => {
                let parts = rates.parts(("disks' writing", rates.disk_write), nodes);
                let from = ("parallel file system's reading", rates.pfs_read, 1.0);
                let back = [("reading back", rates.disk_read.min(rates.link), 1.0)];
                let back = rates.read_back_in.then_some(&back[..]);
                timed(bytes, &[&parts[..], &[from]].concat(), back)
            }
        }
    }

    /// Seconds of a stage-out of `bytes`, and the limiting resource with its rate.
    pub(crate) fn stage_out(&self, bytes: u64, nodes: u32) -> (f64, String) {
        match self {
            Staging::Parallel(rates) => timed(bytes, &rates.parts(rates.flash_read, nodes), None),
            Staging::Mover(rates) => {
                let parts = rates.parts(("disks' reading", rates.disk_read), nodes);
                let to = ("parallel file system's writing", rates.pfs_write, 1.0);
                let back = [("reading back", rates.pfs_read, 1.0)];
                let back = rates.read_back_out.then_some(&back[..]);
                timed(bytes, &[&parts[..], &[to]].concat(), back)
            }
        }
    }
}

impl ParallelRates {
    fn parts(&self, flash: f64, nodes: u32) -> [Part; 5] {
        let each = 1.0 / f64::from(nodes.max(1));
        [
            ("storage nodes' flash", flash, each),
            ("storage nodes' data paths", self.data_path, each),
            ("storage nodes' links", self.link, each),
            ("routers to the parallel file system", self.routers, 1.0),
            ("parallel file system's peak rate", self.pfs, 1.0),
        ]
    }
}

impl MoverRates {
    fn parts(&self, (disk, rate): (&'static str, f64), nodes: u32) -> [Part; 2] {
        let each = 1.0 / f64::from(nodes.max(1));
        [(disk, rate, each), ("link of the moving node", self.link, 1.0 - each)]
    }
}

/// The time of a copy, and of the reading that follows it.
fn timed(bytes: u64, copy: &[Part], read_back: Option<&[Part]>) -> (f64, String) {
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
    ((copying + reading) * bytes as f64, format!("{limit}: {rate}{share}"))
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
    };

    /// Two nodes write 4 GB/s together, and read at the 6 GB/s of their data paths; of eight, the
    /// parallel file system's 10 GB/s are the limit.
    #[test]
    fn parallel_stage_is_limited_by_nodes_or_file_system() {
        let staging = Staging::Parallel(PARALLEL);
        let bytes = 60_000_000_000;
        let takes = |time: f64, expected: f64| assert!((time - expected).abs() < 1e-9, "{time} s");
        takes(staging.stage_in(bytes, 2).0, 15.0);
        assert!(staging.stage_in(bytes, 2).1.starts_with("storage nodes' flash: "));
        takes(staging.stage_out(bytes, 2).0, 10.0);
        assert!(staging.stage_out(bytes, 2).1.starts_with("storage nodes' data paths: "));
        takes(staging.stage_in(bytes, 8).0, 6.0);
        assert!(staging.stage_in(bytes, 8).1.starts_with("parallel file system's peak rate: "));
        assert_eq!(staging.stage_in(0, 8), (0.0, String::new()));
    }

    /// 1 GB on two nodes: half of it crosses the mover's link at 100 MB/s, 5 s; each disk gets half at
    /// 60 MB/s, 8.33 s. Out: the disks read at 200 MB/s, so the link is the limit, 5 s, and reading back
    /// at 500 MB/s takes 2 s more. On one node nothing crosses the link.
    #[test]
    fn mover_keeps_its_own_stripes_and_sends_the_others() {
        let staging = Staging::Mover(MoverRates {
            disk_write: 60e6,
            disk_read: 200e6,
            link: 100e6,
            pfs_read: 500e6,
            pfs_write: 400e6,
            read_back_in: false,
            read_back_out: true,
        });
        let bytes = 1_000_000_000;
        let (time, limit) = staging.stage_in(bytes, 2);
        assert!(
            (time - 8.3333).abs() < 1e-3 && limit.starts_with("disks' writing"),
            "{time} {limit}"
        );
        let (time, limit) = staging.stage_out(bytes, 2);
        assert!(
            (time - 7.0).abs() < 1e-9 && limit.starts_with("link of the moving"),
            "{time} {limit}"
        );
        assert!(limit.ends_with("then reading back for 2.00 s"), "{limit}");
        assert!((staging.stage_out(bytes, 1).0 - (5.0 + 2.0)).abs() < 1e-9);
        assert!(staging.stage_out(bytes, 1).1.starts_with("disks' reading"));
    }
}
