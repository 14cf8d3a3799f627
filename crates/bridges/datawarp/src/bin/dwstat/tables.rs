//! The tables.

use std::collections::BTreeMap;

use clap::ValueEnum;
use forebay_console::table::{self, Column};
use forebay_control::controller::ControlStatus;
use forebay_control::messages::{InstanceId, UnixMillis};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Table {
    /// Pools.
    Pools,
    /// Sessions.
    Sessions,
    /// Instances.
    Instances,
    /// Configurations.
    Configurations,
    /// Registrations: sessions' uses of configurations.
    Registrations,
    /// Activations.
    Activations,
    /// Storage nodes.
    Nodes,
    /// Fragments.
    Fragments,
    /// Name spaces.
    Namespaces,
}

type Row = Vec<String>;

impl Table {
    /// DataWarp's `most`.
    pub const MOST: [Table; 6] = [
        Table::Pools,
        Table::Sessions,
        Table::Instances,
        Table::Configurations,
        Table::Registrations,
        Table::Activations,
    ];

    /// Its text: a line of headings and a line for each object, in columns.
    pub fn text(self, status: &ControlStatus) -> String {
        let (headings, rows): (&[&'static str], Vec<Row>) = match self {
            Table::Pools => (&["pool", "units", "quantity", "free", "gran"], pools(status)),
            Table::Nodes => (
                &["node", "pool", "online", "drain", "gran", "capacity", "insts", "activs"],
                nodes(status),
            ),
            Table::Sessions => (
                &["sess", "state", "token", "creator", "owner", "created", "expiration", "nodes"],
                sessions(status),
            ),
            Table::Instances => (
                &[
                    "inst",
                    "state",
                    "sess",
                    "bytes",
                    "nodes",
                    "created",
                    "expiration",
                    "intact",
                    "label",
                    "public",
                    "confs",
                ],
                instances(status),
            ),
            Table::Configurations => (
                &["conf", "state", "inst", "type", "access_type", "activs"],
                configurations(status),
            ),
            Table::Registrations => {
                (&["reg", "state", "sess", "conf", "wait"], registrations(status))
            }
            Table::Activations => (
                &["activ", "state", "sess", "conf", "nodes", "ccache", "mount"],
                activations(status),
            ),
            Table::Fragments => {
                (&["frag", "state", "inst", "capacity", "gran", "node"], fragments(status))
            }
            Table::Namespaces => (&["ns", "state", "conf", "frag", "span"], namespaces(status)),
        };
        let columns: Vec<Column> = headings.iter().map(|name| Column::number(name, 0)).collect();
        let mut table = table::Table::new(columns);
        for row in rows {
            table.push(row);
        }
        table.to_string()
    }
}

fn pools(status: &ControlStatus) -> Vec<Row> {
    let rows = status.pools.iter().map(|pool| {
        let bytes = |granules: u64| size(Bytes(granules.saturating_mul(pool.granularity.0)));
        let units = "bytes".to_owned();
        vec![pool.name.clone(), units, bytes(pool.quantity), bytes(pool.free), bytes(1)]
    });
    rows.collect()
}

fn granularity(status: &ControlStatus, pool: &str) -> Bytes {
    let found = status.pools.iter().find(|one| one.name == pool);
    found.map_or(Bytes::ZERO, |pool| pool.granularity)
}

fn node_name(status: &ControlStatus, id: NodeId) -> String {
    let found = status.nodes.iter().find(|node| node.id == id);
    found.map_or_else(|| id.0.to_string(), |node| node.name.clone())
}

fn nodes(status: &ControlStatus) -> Vec<Row> {
    let mut activations: BTreeMap<InstanceId, u64> = BTreeMap::new();
    for one in &status.configurations {
        *activations.entry(one.instance).or_default() += u64::from(one.activations);
    }
    let rows = status.nodes.iter().map(|node| {
        let granule = granularity(status, &node.pool);
        let held = status.fragments.iter().filter(|fragment| fragment.node == node.id);
        let served = held.filter_map(|fragment| activations.get(&fragment.instance));
        vec![
            node.name.clone(),
            node.pool.clone(),
            node.online.to_string(),
            node.drained.to_string(),
            size(granule),
            size(Bytes(node.granules.saturating_mul(granule.0))),
            node.fragments.to_string(),
            served.sum::<u64>().to_string(),
        ]
    });
    rows.collect()
}

fn sessions(status: &ControlStatus) -> Vec<Row> {
    let rows = status.sessions.iter().map(|session| {
        vec![
            session.id.0.to_string(),
            session.state.clone(),
            session.token.clone(),
            session.creator.replace(' ', "_"),
            session.owner.uid.to_string(),
            time(session.created),
            "never".to_owned(),
            session.hosts.len().to_string(),
        ]
    });
    rows.collect()
}

fn instances(status: &ControlStatus) -> Vec<Row> {
    let rows = status.instances.iter().map(|instance| {
        let own = status.configurations.iter().filter(|one| one.instance == instance.id);
        vec![
            instance.id.0.to_string(),
            instance.state.clone(),
            instance.session.0.to_string(),
            size(instance.capacity),
            instance.nodes.len().to_string(),
            time(instance.created),
            "never".to_owned(),
            instance.intact.to_string(),
            instance.label.clone(),
            instance.public.to_string(),
            own.count().to_string(),
        ]
    });
    rows.collect()
}

fn configurations(status: &ControlStatus) -> Vec<Row> {
    let rows = status.configurations.iter().map(|one| {
        vec![
            one.id.0.to_string(),
            one.state.clone(),
            one.instance.0.to_string(),
            one.kind.keyword().to_owned(),
            one.mode.keyword().to_owned(),
            one.activations.to_string(),
        ]
    });
    rows.collect()
}

/// A registration has no id of its own here; its number is its position.
fn registrations(status: &ControlStatus) -> Vec<Row> {
    let pairs = status.configurations.iter().flat_map(|one| {
        one.sessions.iter().map(move |session| (*session, one.id, one.state.clone()))
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort();
    let waits = |session| {
        let found = status.sessions.iter().find(|row| row.id == session);
        found.is_some_and(|row| row.ending)
    };
    let rows = (1u64..).zip(pairs).map(|(number, (session, configuration, state))| {
        let (session_id, wait) = (session.0.to_string(), waits(session).to_string());
        vec![number.to_string(), state, session_id, configuration.0.to_string(), wait]
    });
    rows.collect()
}

fn activations(status: &ControlStatus) -> Vec<Row> {
    let rows = status.activations.iter().map(|activation| {
        vec![
            activation.id.0.to_string(),
            activation.state.clone(),
            activation.session.0.to_string(),
            activation.configuration.0.to_string(),
            activation.hosts.len().to_string(),
            "no".to_owned(),
            activation.mount.clone(),
        ]
    });
    rows.collect()
}

fn fragments(status: &ControlStatus) -> Vec<Row> {
    let rows = status.fragments.iter().map(|fragment| {
        let node = status.nodes.iter().find(|node| node.id == fragment.node);
        let granule = node.map_or(Bytes::ZERO, |node| granularity(status, &node.pool));
        vec![
            fragment.id.0.to_string(),
            fragment.state.clone(),
            fragment.instance.0.to_string(),
            size(Bytes(fragment.granules.saturating_mul(granule.0))),
            size(granule),
            node_name(status, fragment.node),
        ]
    });
    rows.collect()
}

/// The name space of each configuration spans all fragments of its instance; it is listed with the
/// first one.
fn namespaces(status: &ControlStatus) -> Vec<Row> {
    let rows = status.configurations.iter().map(|one| {
        let own = status.fragments.iter().filter(|fragment| fragment.instance == one.instance);
        let own: Vec<_> = own.map(|fragment| fragment.id.0).collect();
        vec![
            one.id.0.to_string(),
            one.state.clone(),
            one.id.0.to_string(),
            own.iter().min().map_or_else(|| "-".to_owned(), u64::to_string),
            own.len().to_string(),
        ]
    });
    rows.collect()
}

/// Local time to seconds, as DataWarp shows it.
fn time(at: UnixMillis) -> String {
    let seconds = i64::try_from(at.0 / 1000).ok();
    let stamp = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    stamp.map_or_else(
        || "-".to_owned(),
        |stamp| stamp.to_zoned(TimeZone::system()).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
    )
}

/// A size with a binary prefix and at most two decimals: `397.44GiB`, `16MiB`.
fn size(bytes: Bytes) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes.0 as f64;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 1024.0
        && let Some(larger) = units.next()
    {
        value /= 1024.0;
        unit = Some(larger);
    }
    let number = format!("{value:.2}");
    format!("{}{}", number.trim_end_matches('0').trim_end_matches('.'), unit.unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::{Bytes, size};

    #[test]
    fn sizes_have_at_most_two_decimals_and_no_trailing_zero() {
        assert_eq!(size(Bytes(16 << 20)), "16MiB");
        assert_eq!(size(Bytes(426_751_131_648)), "397.44GiB");
        assert_eq!(size(Bytes(0)), "0B");
        assert_eq!(size(Bytes(1000)), "1000B");
    }
}
