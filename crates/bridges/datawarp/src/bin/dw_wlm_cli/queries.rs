//! Objects of a pool in DataWarp's JSON form.

use std::collections::BTreeMap;

use forebay_control::controller::{
    ConfigurationStatus, ControlStatus, InstanceStatus, Lifetime, PoolStatus, SessionStatus,
};
use forebay_control::messages::InstanceId;
use forebay_units::Bytes;
use serde_json::{Value, json};

/// Interval of DataWarp's limit on writes to an instance, in seconds. There is no such limit here.
const WRITE_WINDOW_SECONDS: u64 = 86_400;
/// Multiple of the capacity that DataWarp lets a job write in that interval.
const WRITE_WINDOW_MULTIPLIER: u64 = 10;

/// The capacity of a job's instance. Slurm's plugin reads `capacity`, other callers `bytes`.
pub fn real_size(bytes: Bytes) -> String {
    text(&json!({"units": "bytes", "bytes": bytes.0, "capacity": bytes.0}))
}

/// JSON without apostrophes: Slurm's plugin changes them into quotation marks.
fn text(value: &Value) -> String {
    value.to_string().replace('\'', "\\u0027") + "\n"
}

/// The pools.
pub fn pools(status: &ControlStatus) -> String {
    let row = |pool: &PoolStatus| {
        json!({
            "id": pool.name,
            "units": "bytes",
            "granularity": pool.granularity.0,
            "quantity": pool.quantity,
            "free": pool.free,
        })
    };
    let rows: Vec<Value> = status.pools.iter().map(row).collect();
    text(&json!({"pools": rows}))
}

/// DataWarp's state object from the five characters.
fn state(word: &str) -> Value {
    let has = |mark| word.contains(mark);
    json!({
        "goal": if has('D') { "destroy" } else { "create" },
        "actualized": has('A'),
        "fuse_blown": false,
        "transitioning": has('T'),
        "mixed": has('M'),
    })
}

/// The instances.
pub fn instances(status: &ControlStatus) -> String {
    let mut configurations: BTreeMap<InstanceId, Vec<u64>> = BTreeMap::new();
    for row in &status.configurations {
        configurations.entry(row.instance).or_default().push(row.id.0);
    }
    let row = |instance: &InstanceStatus| {
        json!({
            "id": instance.id.0,
            "label": instance.label,
            "capacity": {"bytes": instance.capacity.0, "nodes": instance.nodes.len()},
            "created": instance.created.0 / 1000,
            "expiration": 0,
            "expired": false,
            "intact": instance.intact,
            "public": instance.public,
            "limits": {
                "write_window_length": WRITE_WINDOW_SECONDS,
                "write_window_multiplier": WRITE_WINDOW_MULTIPLIER,
            },
            "links": {
                "session": instance.session.0,
                "configurations": configurations.get(&instance.id).cloned().unwrap_or_default(),
            },
            "state": state(&instance.state),
        })
    };
    let rows: Vec<Value> = status.instances.iter().map(row).collect();
    text(&json!({"instances": rows}))
}

/// The sessions.
pub fn sessions(status: &ControlStatus) -> String {
    let row = |session: &SessionStatus| {
        json!({
            "id": session.id.0,
            "created": session.created.0 / 1000,
            "creator": match session.lifetime {
                Lifetime::Job => session.creator.as_str(),
                Lifetime::Persistent => "CLI",
            },
            "owner": session.owner.uid,
            "token": session.token,
            "expiration": 0,
            "links": {"client_nodes": session.hosts},
            "state": state(&session.state),
        })
    };
    let rows: Vec<Value> = status.sessions.iter().map(row).collect();
    text(&json!({"sessions": rows}))
}

/// The configurations.
pub fn configurations(status: &ControlStatus) -> String {
    let row = |one: &ConfigurationStatus| {
        json!({
            "id": one.id.0,
            "type": one.kind.keyword(),
            "access_type": one.mode.keyword(),
            "links": {"instance": one.instance.0},
            "state": state(&one.state),
        })
    };
    let rows: Vec<Value> = status.configurations.iter().map(row).collect();
    text(&json!({"configurations": rows}))
}

#[cfg(test)]
mod tests {
    use super::{real_size, state, text};
    use forebay_units::Bytes;
    use serde_json::json;

    #[test]
    fn text_has_no_apostrophe_and_parses_to_the_same_value() {
        let value = json!({"creator": "ada's run"});
        assert!(!text(&value).contains('\''));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text(&value)).unwrap(), value);
    }

    #[test]
    fn size_has_the_keys_of_both_readers() {
        assert_eq!(real_size(Bytes(5)), "{\"units\":\"bytes\",\"bytes\":5,\"capacity\":5}\n");
    }

    #[test]
    fn state_word_becomes_an_object() {
        let object = state("DA-TM");
        assert_eq!(object["goal"], "destroy");
        assert_eq!((&object["actualized"], &object["mixed"]), (&json!(true), &json!(true)));
        assert_eq!(state("C--T-")["actualized"], false);
    }
}
