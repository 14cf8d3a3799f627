//! The structure of the network in a machine file: routers of groups, and the cables between groups.

use crate::document::{Document, Located};
use crate::machine::{Arrangement, Plugging, Structure};
use crate::parse::MAX_ROUTERS;
use crate::section::Section;

/// Routers and cables, as [`Network`](crate::machine::Network) has them.
pub(super) struct Routers {
    pub structure: Structure,
    pub groups: u32,
    pub chassis: u32,
    pub slots: u32,
    pub spines: u32,
    pub cores: u32,
    pub sockets: u32,
    pub pair: u32,
    pub per_cable: u32,
    pub arrangement: Arrangement,
    pub plugging: Plugging,
    /// Place in the file of the number of routers.
    pub at: usize,
}

impl Routers {
    /// Whether groups have rank-2 links.
    pub fn has_rank2(&self) -> bool {
        self.structure == Structure::Dragonfly && self.chassis > 1
    }
}

/// Reads the keys of the structure that `network.structure` names, a dragonfly without it.
pub(super) fn read_routers(section: &Section<'_, '_>) -> Option<Routers> {
    let structure = match section.has_key("structure") {
        true => section.choice("structure", Structure::NAMES)?.value,
        false => Structure::Dragonfly,
    };
    let groups = section.integer("groups", 1..=10_000u32);
    match structure {
        Structure::Dragonfly => read_dragonfly(section, groups),
        Structure::DragonflyPlus => read_dragonfly_plus(section, groups),
        Structure::FatTree => read_fat_tree(section, groups),
    }
}

fn read_dragonfly(section: &Section<'_, '_>, groups: Option<Located<u32>>) -> Option<Routers> {
    let doc = section.doc;
    let chassis = section.integer("chassis_per_group", 1..=1_000u32);
    let routers = section.integer("routers_per_chassis", 1..=1_000u32);
    let sockets = section.integer("cable_sockets_per_group", 0..=1_000_000u32);
    let pair = section.integer("cables_per_group_pair", 0..=10_000u32);
    let per_cable = section.integer("routers_per_cable", 1..=16u32);
    let arrangement = section.choice("arrangement", Arrangement::NAMES);
    let plugging = section.choice("plugging", Plugging::NAMES);
    let (groups, chassis, routers) = (groups?, chassis?, routers?);
    let of_group = format!("{} x {}", chassis.value, routers.value);
    check_count(doc, &groups, &of_group, chassis.value * routers.value)?;
    let (sockets, pair) = (sockets?, pair?);
    check_cables(doc, groups.value, &sockets, &pair);
    let per_cable = per_cable?;
    if routers.value % per_cable.value != 0 {
        return doc.refuse(
            per_cable.span.start,
            format!(
                "`network.routers_per_cable` is {}: the {} routers of a chassis cannot be divided \
                 into sets of {}",
                per_cable.value, routers.value, per_cable.value
            ),
            "a divisor of routers_per_chassis",
        );
    }
    Some(Routers {
        structure: Structure::Dragonfly,
        groups: groups.value,
        chassis: chassis.value,
        slots: routers.value,
        spines: 0,
        cores: 0,
        sockets: sockets.value,
        pair: pair.value,
        per_cable: per_cable.value,
        arrangement: arrangement?.value,
        plugging: plugging?.value,
        at: chassis.span.start,
    })
}

fn read_dragonfly_plus(section: &Section<'_, '_>, groups: Option<Located<u32>>) -> Option<Routers> {
    let doc = section.doc;
    let leaves = section.integer("leaf_routers_per_group", 1..=1_000u32);
    let spines = section.integer("spine_routers_per_group", 1..=1_000u32);
    let sockets = section.integer("cable_sockets_per_group", 0..=1_000_000u32);
    let pair = section.integer("cables_per_group_pair", 0..=10_000u32);
    let arrangement = section.choice("arrangement", Arrangement::NAMES);
    let plugging = section.choice("plugging", &SPINE_PLUGGINGS);
    let (groups, leaves, spines) = (groups?, leaves?, spines?);
    let of_group = format!("{} + {}", leaves.value, spines.value);
    check_count(doc, &groups, &of_group, leaves.value + spines.value)?;
    let (sockets, pair) = (sockets?, pair?);
    check_cables(doc, groups.value, &sockets, &pair);
    Some(Routers {
        structure: Structure::DragonflyPlus,
        groups: groups.value,
        chassis: 1,
        slots: leaves.value,
        spines: spines.value,
        cores: 0,
        sockets: sockets.value,
        pair: pair.value,
        per_cable: 1,
        arrangement: arrangement?.value,
        plugging: plugging?.value,
        at: leaves.span.start,
    })
}

/// Spines have no chassis.
const SPINE_PLUGGINGS: [(&str, Plugging); 2] =
    [("in-order", Plugging::InOrder), ("spread", Plugging::Spread)];

fn read_fat_tree(section: &Section<'_, '_>, groups: Option<Located<u32>>) -> Option<Routers> {
    let doc = section.doc;
    let leaves = section.integer("leaf_routers_per_group", 1..=1_000u32);
    let spines = section.integer("spine_routers_per_group", 1..=1_000u32);
    let cores = section.integer("core_routers_per_plane", 0..=1_000u32);
    let (groups, leaves, spines, cores) = (groups?, leaves?, spines?, cores?);
    if (groups.value > 1) != (cores.value > 0) {
        let (found, expected) = match groups.value {
            1 => ("one group needs no core routers".to_string(), "0, or several groups"),
            count => (format!("{count} groups are not joined"), "at least 1, or one group"),
        };
        return doc.refuse(
            cores.span.start,
            format!("`network.core_routers_per_plane` is {}: {found}", cores.value),
            expected,
        );
    }
    let of_group = format!("{} + {}", leaves.value, spines.value);
    check_count(doc, &groups, &of_group, leaves.value + spines.value)?;
    Some(Routers {
        structure: Structure::FatTree,
        groups: groups.value,
        chassis: 1,
        slots: leaves.value,
        spines: spines.value,
        cores: cores.value,
        sockets: spines.value * cores.value,
        pair: cores.value,
        per_cable: 1,
        arrangement: Arrangement::Absolute,
        plugging: Plugging::InOrder,
        at: leaves.span.start,
    })
}

/// Refuses more routers than a machine may have; `of_group` says how many a group has.
fn check_count(
    doc: &Document<'_>,
    groups: &Located<u32>,
    of_group: &str,
    count: u32,
) -> Option<()> {
    let all = u64::from(groups.value) * u64::from(count);
    if all > u64::from(MAX_ROUTERS) {
        return doc.refuse(
            groups.span.start,
            format!("{} groups of {of_group} routers are {all} routers", groups.value),
            format!("at most {MAX_ROUTERS} routers"),
        );
    }
    Some(())
}

/// Checks that all groups are connected, and that a group has enough sockets.
fn check_cables(doc: &Document<'_>, groups: u32, sockets: &Located<u32>, pair: &Located<u32>) {
    let others = groups.saturating_sub(1);
    let needed = u64::from(pair.value) * u64::from(others);
    if needed > u64::from(sockets.value) {
        let most = sockets.value / others.max(1);
        let expected = if most == 0 {
            format!("cable_sockets_per_group of at least {needed}, or fewer groups")
        } else {
            format!(
                "cables_per_group_pair of at most {most}, or cable_sockets_per_group of at least {needed}"
            )
        };
        doc.add_problem(
            pair.span.start,
            format!(
                "`network.cables_per_group_pair` is {}: with {others} other groups this needs \
                 {needed} sockets of the {} a group has",
                pair.value, sockets.value
            ),
            expected,
        );
    }
    if others > 0 && pair.value == 0 {
        doc.add_problem(
            pair.span.start,
            format!("`network.cables_per_group_pair` is 0, so {groups} groups are not joined"),
            "at least 1",
        );
    }
}
