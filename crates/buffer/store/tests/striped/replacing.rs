//! Files that replace others: their data are durable first.

use crate::model::Model;
use crate::support::daemon::INSTANCE;
use crate::world::World;
use forebay_protocol::message::{NameRequest, OnExisting};
use forebay_protocol::{FileKind, Ino, NodeIndex, Request};
use forebay_store::objects::ObjectId;

/// A file that is to replace another one, with its data on each node.
pub struct Replacing {
    ino: Ino,
    data: Vec<(NodeIndex, Vec<u8>)>,
}

impl Replacing {
    /// The file that a request gives the name of another one.
    pub fn of(request: &Request, model: &Model, world: &World) -> Option<Replacing> {
        let Request::Name(NameRequest::Rename { parent, name, to, to_name, existing }) = request
        else {
            return None;
        };
        let (source, target) = (model.get(*parent, name)?, model.get(*to, to_name)?);
        let are_files = source.1 == FileKind::File && target.1 == FileKind::File;
        if *existing != OnExisting::Replace || source.0 == target.0 || !are_files {
            return None;
        }
        let ino = source.0;
        let data = world.nodes().filter_map(|node| Some((node, contents(world, node, ino)?)));
        Some(Replacing { ino, data: data.collect() })
    }

    /// The rename has succeeded: all data that have not changed meanwhile are durable.
    pub fn check(&self, world: &World) {
        for (node, data) in &self.data {
            if contents(world, *node, self.ino).as_ref() != Some(data) {
                continue;
            }
            let object = ObjectId { instance: INSTANCE, ino: self.ino };
            let durable = world.host(*node).daemon.objects.durable_contents(object);
            assert!(
                durable.as_ref() == Some(data) || data.is_empty(),
                "file {} replaced another one before its data were durable on {node:?}",
                self.ino
            );
        }
    }
}

fn contents(world: &World, node: NodeIndex, ino: Ino) -> Option<Vec<u8>> {
    world.host(node).daemon.objects.object_contents(ObjectId { instance: INSTANCE, ino })
}
