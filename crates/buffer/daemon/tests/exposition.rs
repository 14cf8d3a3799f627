//! Metrics of a pool's state.

use forebay_control::controller::NodeStatus;
use forebay_daemon::Status;
use forebay_daemon::activity::exposition;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

#[test]
fn metrics_mark_forgotten_nodes() {
    let node = |id, forgotten: bool| NodeStatus {
        wrong_disk: false,
        unknown: 0,
        id: NodeId(id),
        name: format!("bb{id}"),
        pool: "fast".to_owned(),
        online: !forgotten,
        drained: false,
        evacuates: false,
        forgotten,
        granules: 10,
        used: 0,
        fragments: 0,
        written: Bytes(0),
    };
    let mut status = Status::default();
    status.control.nodes.extend([node(0, false), node(1, true)]);
    let page = exposition(&status);
    for (id, value) in [(0, 0), (1, 1)] {
        let line = |value| {
            let labels = format!("{{node=\"bb{id}\",pool=\"fast\"}}");
            page.contains(&format!("\nforebay_node_given_up{labels} {value}\n"))
        };
        assert!(line(value) && !line(1 - value), "{page}");
    }
}
