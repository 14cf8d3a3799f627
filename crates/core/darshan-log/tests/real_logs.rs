//! Real logs: their facts, by PyDarshan.

use forebay_darshan_log::{Api, FileUse, Log, Performance, TraceApi};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A log in `tests/data`, or that directory.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The logs in a directory, by name.
pub fn directory(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut logs: Vec<_> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "darshan"));
    logs.sort();
    logs.into_iter()
}

fn open(name: &str) -> Log<File> {
    Log::open(File::open(data(name)).unwrap()).unwrap()
}

fn performance(log: &mut Log<File>, api: Api) -> Performance {
    let mut performance = Performance::default();
    log.records(api, |record| performance.add(&FileUse::of(record))).unwrap();
    performance
}

/// Darshan's own tools give the same figures: `agg_perf_by_slowest` in MiB/s, and the categories of files.
#[test]
fn rates_are_those_of_darshan() {
    let cases = [
        ("ior-48ranks.darshan", Api::Posix, 51_539_607_552, 13_078.748_559_778_762, (48, 0, 0)),
        ("macsio.darshan", Api::Posix, 94_554_500, 1_559.128_215_909_606_3, (0, 0, 3)),
        ("macsio.darshan", Api::MpiIo, 13_286_360, 9.276_372_161_234_564, (0, 0, 1)),
        ("dxt-simple.darshan", Api::Posix, 4_040, 0.198_484_281_742_54, (16, 2, 0)),
    ];
    for (name, api, bytes, mib_per_second, (unique, partly, shared)) in cases {
        let mut log = open(name);
        let found = performance(&mut log, api);
        assert_eq!(found.bytes(), bytes, "{name} {}", api.name());
        let rate = found.rate().unwrap() / f64::from(1 << 20);
        let error = (rate / mib_per_second - 1.0).abs();
        assert!(error < 1e-9, "{name} {}: {rate} MiB/s", api.name());
        let sharing = found.sharing();
        let counts = (sharing.unique, sharing.partly_shared, sharing.shared);
        assert_eq!(counts, (unique, partly, shared), "{name} {}", api.name());
    }
}

/// PyDarshan's traces of this log: 118 segments of four processes on one host.
#[test]
fn traces_of_a_real_log_are_complete() {
    let mut log = open("ior-hdf5-dxt.darshan");
    let (mut segments, mut bytes, mut hosts) = (0, 0, Vec::new());
    for api in [TraceApi::Posix, TraceApi::MpiIo] {
        log.traces(api, |file, _, some| {
            segments += some.len();
            bytes += some.iter().map(|segment| segment.bytes).sum::<u64>();
            hosts.push(file.host.clone());
        })
        .unwrap();
    }
    hosts.sort();
    hosts.dedup();
    assert_eq!((segments, bytes, hosts.len()), (118, 2 * (4_202_504 + 4_195_800), 1));
}
