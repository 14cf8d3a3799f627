//! A running pool with measured rates, for a plan.

use forebay_console::Failure;
use forebay_daemon::config::PoolConfig;
use forebay_job::{PoolSelection, pool_status};
use forebay_job_script::Direction;
use forebay_plan::{MeasuredRates, PoolDescription};
use forebay_policy::pool::{NodeState, StorageNode};
use forebay_units::Bytes;
use std::path::Path;

/// The rates of a pool in a file of `forebay measure`.
pub(super) fn read_rates(path: &Path) -> Result<MeasuredRates, Failure> {
    let at = |error: String| Failure::Input(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
    let rates: MeasuredRates = toml::from_str(&text)
        .map_err(|error| at(format!("no file of `forebay measure`: {}", error.message())))?;
    rates.check().map_err(|error| at(error.to_string()))
}

/// A running pool with measured rates.
pub(super) fn describe_pool(file: &Path, rates: MeasuredRates) -> Result<PoolDescription, Failure> {
    let config = PoolConfig::read(file).map_err(|error| Failure::Input(error.to_string()))?;
    let status = pool_status(&PoolSelection::Shared(file.to_owned()))
        .map_err(|error| Failure::Failed(error.to_string()))?;
    if rates.pool != config.name {
        return Err(Failure::Input(format!(
            "the rates are those of pool {}, and {} describes pool {}: measure this one with \
             `forebay measure`",
            rates.pool,
            file.display(),
            config.name
        )));
    }
    let nodes = status.nodes.iter().filter(|node| node.online && !node.drained);
    let storage = nodes.map(|node| StorageNode {
        id: node.id,
        state: NodeState::Online,
        total: node.granules,
        used: node.used,
        instances: node.fragments,
        written: Bytes(0),
    });
    let read_back = |direction| config.read_back.applies_to(direction);
    Ok(PoolDescription {
        storage: storage.collect(),
        read_back: (read_back(Direction::In), read_back(Direction::Out)),
        name: config.name,
        granularity: config.granularity,
        stripe: config.stripe,
        rates,
    })
}
