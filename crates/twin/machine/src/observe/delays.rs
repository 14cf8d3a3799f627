//! Delays by cause.

use super::Job;
use forebay_network::WaitMatrix;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Matrix of delays: for each pair of jobs, the time for which packets and requests of the one delayed
/// those of the other. A packet is delayed at each link from when it is ready to be sent to the start
/// of its transmission; a request is delayed by its waits at the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delays {
    /// The jobs, in the order of rows and columns: those whose packets crossed a link.
    pub jobs: Vec<String>,
    /// By class of links.
    pub network: Vec<ClassDelays>,
    /// By server; only of servers at which requests waited.
    pub servers: Vec<ServerDelays>,
}

/// Delays at the links of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassDelays {
    /// `node`, `rank-1`, `rank-2` or `global`.
    pub class: String,
    /// `seconds[i][j]`: delay of job i by job j.
    pub seconds: Vec<Vec<f64>>,
    /// All delays of each job: the sum of its row.
    pub total_seconds: Vec<f64>,
    /// Passages of each job's packets over these links.
    pub passages: Vec<u64>,
}

/// Delays at a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerDelays {
    /// Its node.
    pub node: u32,
    /// As [`ClassDelays::seconds`].
    pub seconds: Vec<Vec<f64>>,
}

const CLASSES: [&str; 4] = ["node", "rank-1", "rank-2", "global"];

impl Delays {
    /// The document of the waits of all groups. Servers have requests of IOR only, which therefore
    /// delays itself there.
    pub(super) fn new(waits: &WaitMatrix, servers: &BTreeMap<u32, u128>) -> Delays {
        let sends = |job: &Job| waits.passages.iter().any(|class| class[*job as usize] > 0);
        let present: Vec<Job> = Job::ALL.into_iter().filter(sends).collect();
        let of_server = |(node, waited): (&u32, &u128)| {
            let of = |job| if job == Job::Ior { *waited as f64 * 1e-12 } else { 0.0 };
            let row = |i| present.iter().map(|&j| if i == j { of(j) } else { 0.0 }).collect();
            let by = present.iter().map(|&i| row(i)).collect();
            ServerDelays { node: *node, seconds: by }
        };
        let named = present.iter().map(|job| (*job as usize, job.name().to_string())).collect();
        Delays {
            servers: servers.iter().filter(|(_, waited)| **waited > 0).map(of_server).collect(),
            ..Delays::at_links(waits, named)
        }
    }

    /// The delays at links of jobs with these numbers and names.
    pub(super) fn at_links(waits: &WaitMatrix, named: Vec<(usize, String)>) -> Delays {
        let seconds = |ps: u128| ps as f64 * 1e-12;
        let jobs = || named.iter().map(|(number, _)| *number);
        let of_class = |(class, name): (usize, &str)| ClassDelays {
            class: name.to_string(),
            seconds: jobs()
                .map(|i| jobs().map(|j| seconds(waits.delays[class][i][j])).collect())
                .collect(),
            total_seconds: jobs().map(|i| seconds(waits.totals[class][i])).collect(),
            passages: jobs().map(|i| waits.passages[class][i]).collect(),
        };
        let network = CLASSES.into_iter().enumerate().map(of_class).collect();
        let jobs = named.iter().map(|(_, name)| name.clone()).collect();
        Delays { jobs, network, servers: Vec::new() }
    }
}
