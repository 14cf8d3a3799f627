//! Instances that move off drained storage nodes, as text.

use forebay_control::controller::{EvacuationStatus, EvacuationStep, NodeStatus};
use forebay_daemon::activity::Status;
use forebay_policy::pool::NodeId;
use forebay_units::human::{bytes, counted};

use forebay_console::table::{Column, Table};

fn node_names(status: &Status, nodes: &[NodeId]) -> String {
    let name = |id: &NodeId| status.nodes.iter().find(|node| node.id == *id);
    let names: Vec<&str> = nodes.iter().filter_map(name).map(|node| &*node.name).collect();
    names.join(", ")
}

/// The step, and of a copy how far it is.
fn state(evacuation: &EvacuationStatus) -> String {
    let progress = &evacuation.progress;
    match evacuation.step {
        EvacuationStep::EndsWithJob => "ends with its job".to_owned(),
        EvacuationStep::Waiting => "waits".to_owned(),
        EvacuationStep::Preparing => "space is allocated".to_owned(),
        EvacuationStep::Copying => {
            let now = progress.present();
            // The totals still grow while the source is walked.
            let open = if progress.all_found { "" } else { "+" };
            let (done, total) = (bytes(now.bytes), bytes(now.bytes_total));
            format!("{}: {done} of {total}{open}", progress.phase.words())
        }
        EvacuationStep::Leaving => "being removed".to_owned(),
    }
}

fn table<'a>(
    status: &Status,
    evacuations: impl Iterator<Item = &'a EvacuationStatus>,
) -> (Table, String) {
    let mut table = Table::new([
        Column::text("leaves", 0),
        Column::text("instance", 0),
        Column::text("state", 0),
        Column::text("to", 0),
        Column::number("there", 0),
    ]);
    let mut reasons = String::new();
    for evacuation in evacuations {
        let label = &evacuation.label;
        table.push([
            node_names(status, &evacuation.nodes),
            label.clone(),
            state(evacuation),
            node_names(status, &evacuation.targets),
            bytes(evacuation.allocated.0),
        ]);
        if let Some(reason) = &evacuation.reason {
            reasons.push_str(&format!("{label}: {reason}\n"));
        }
        for job in &evacuation.waiting {
            reasons.push_str(&format!("{job}: waits to mount {label} until that has moved\n"));
        }
    }
    (table, reasons)
}

/// Adds the instances that are to leave drained nodes, if there are any.
pub(super) fn add_evacuations(text: &mut String, status: &Status) {
    if status.evacuations.is_empty() {
        return;
    }
    let (table, reasons) = table(status, status.evacuations.iter());
    text.push('\n');
    text.push_str(&table.to_string());
    text.push_str(&reasons);
}

/// The instances that are left on a drained node, with the reasons, for its operator.
pub fn left_on_node(status: &Status, name: &str) -> String {
    let Some(node) = status.nodes.iter().find(|node| node.name == name) else {
        return String::new();
    };
    let NodeStatus { id, fragments, .. } = *node;
    if fragments == 0 {
        return format!("{name} is drained: nothing is on it\n");
    }
    if !node.evacuates {
        let count = counted(fragments.into(), "instance");
        return format!("nothing new is allocated on {name}; {count} keep their data there\n");
    }
    let left = || status.evacuations.iter().filter(move |left| left.nodes.contains(&id));
    let moving = left()
        .filter(|left| !matches!(left.step, EvacuationStep::EndsWithJob | EvacuationStep::Leaving));
    let (count, sum) = moving
        .fold((0u64, 0u64), |(count, sum), left| (count + 1, sum.saturating_add(left.allocated.0)));
    let (table, reasons) = table(status, left());
    format!(
        "{name} is being drained: {} with {} there to move\n{table}{reasons}",
        counted(count, "persistent instance"),
        bytes(sum)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::controller::ControlStatus;
    use forebay_control::messages::{InstanceId, StageProgress};
    use forebay_units::Bytes;

    fn example() -> Status {
        let node = |id: u32, fragments, evacuates| NodeStatus {
            id: NodeId(id),
            name: format!("bb{id}"),
            pool: "fast".into(),
            online: true,
            drained: evacuates,
            evacuates,
            forgotten: false,
            granules: 64,
            used: 32,
            fragments,
            written: Bytes(0),
            wrong_disk: false,
            unknown: 0,
        };
        let left = |id, label: &str, step, reason: Option<&str>| EvacuationStatus {
            instance: InstanceId(id),
            label: label.into(),
            owner: None,
            nodes: vec![NodeId(1)],
            allocated: Bytes(1 << 30),
            targets: Vec::new(),
            step,
            reason: reason.map(str::to_owned),
            progress: StageProgress::default(),
            waiting: Vec::new(),
        };
        let progress = StageProgress {
            bytes: 1 << 20,
            bytes_total: 4 << 20,
            all_found: true,
            ..StageProgress::default()
        };
        let copied = EvacuationStatus {
            targets: vec![NodeId(0), NodeId(2)],
            progress,
            waiting: vec!["43".into()],
            ..left(2, "dbs", EvacuationStep::Copying, None)
        };
        let in_use = "it is in use: by `41` on nid00001";
        ControlStatus {
            nodes: vec![node(0, 1, false), node(1, 3, true), node(2, 1, false)],
            evacuations: vec![
                left(1, "42", EvacuationStep::EndsWithJob, Some("job `42` has not ended")),
                copied,
                left(3, "data", EvacuationStep::Waiting, Some(in_use)),
            ],
            ..ControlStatus::default()
        }
        .into()
    }

    #[test]
    fn drain_says_what_is_left_and_what_it_waits_for() {
        assert_eq!(
            left_on_node(&example(), "bb1"),
            "\
bb1 is being drained: 2 persistent instances with 2.00 GiB there to move
leaves  instance  state                          to           there
bb1     42        ends with its job                        1.00 GiB
bb1     dbs       copying: 1.00 MiB of 4.00 MiB  bb0, bb2  1.00 GiB
bb1     data      waits                                    1.00 GiB
42: job `42` has not ended
43: waits to mount dbs until that has moved
data: it is in use: by `41` on nid00001
"
        );
        let mut empty = example();
        empty.control.nodes[1].fragments = 0;
        assert_eq!(left_on_node(&empty, "bb1"), "bb1 is drained: nothing is on it\n");
    }

    #[test]
    fn status_lists_what_leaves_drained_nodes() {
        let mut text = String::new();
        add_evacuations(&mut text, &example());
        assert!(text.starts_with("\nleaves  instance"), "{text}");
        assert!(text.contains("dbs       copying: 1.00 MiB of 4.00 MiB"), "{text}");
        let mut none = String::new();
        add_evacuations(&mut none, &Status::default());
        assert_eq!(none, "");
    }
}
