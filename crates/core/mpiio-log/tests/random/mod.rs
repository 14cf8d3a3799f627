//! Random datatypes and views, and their bytes by the definition of MPI.
#![allow(dead_code, reason = "each test file uses a part")]

use forebay_mpiio_log::{Block, Datatype, Field, View};
use forebay_random::RandomSequence;
use std::sync::Arc;

/// A number below `bound`.
pub fn below(random: &mut RandomSequence, bound: u64) -> u64 {
    forebay_random::below(random.next_u64(), bound)
}

/// A datatype of at most `depth` levels with non-negative displacements.
pub fn datatype(random: &mut RandomSequence, depth: u32) -> Datatype {
    if depth <= 1 {
        return Datatype::Bytes(below(random, 5));
    }
    let element = Arc::new(datatype(random, depth - 1));
    match below(random, 6) {
        0 => Datatype::Contiguous { count: below(random, 4), element },
        1 => {
            let (count, block) = (below(random, 4), below(random, 3));
            Datatype::Vector { count, block, stride: below(random, 24) as i64, element }
        }
        2 => {
            let block = |random: &mut RandomSequence| Block {
                displacement: below(random, 40) as i64,
                length: below(random, 3),
            };
            Datatype::Indexed {
                blocks: (0..below(random, 4)).map(|_| block(random)).collect(),
                element,
            }
        }
        3 => {
            let field = |random: &mut RandomSequence| Field {
                displacement: below(random, 40) as i64,
                count: below(random, 3),
                datatype: datatype(random, depth - 1),
            };
            Datatype::Struct { fields: (0..below(random, 4)).map(|_| field(random)).collect() }
        }
        4 => Datatype::Resized {
            lower_bound: below(random, 4) as i64,
            extent: below(random, 40) as i64,
            element,
        },
        _ => Datatype::Bytes(below(random, 9)),
    }
}

/// A datatype whose displacements increase: what MPI demands of a file type.
pub fn ordered_datatype(random: &mut RandomSequence, depth: u32) -> Datatype {
    if depth <= 1 {
        return Datatype::Bytes(1 + below(random, 5));
    }
    let element = Arc::new(ordered_datatype(random, depth - 1));
    let extent = element.bounds().unwrap().extent();
    match below(random, 4) {
        0 => Datatype::Contiguous { count: 1 + below(random, 3), element },
        1 => {
            let (count, block) = (1 + below(random, 3), 1 + below(random, 2));
            let stride = extent * block as i64 + below(random, 9) as i64;
            Datatype::Vector { count, block, stride, element }
        }
        2 => {
            let mut displacement = 0;
            let mut blocks = Vec::new();
            for _ in 0..1 + below(random, 4) {
                displacement += below(random, 9) as i64;
                let length = below(random, 3);
                blocks.push(Block { displacement, length });
                displacement += extent * length as i64;
            }
            blocks.push(Block { displacement, length: 1 });
            Datatype::Indexed { blocks, element }
        }
        _ => {
            let extent = extent + below(random, 20) as i64;
            Datatype::Resized { lower_bound: 0, extent, element }
        }
    }
}

/// A view that contains data.
pub fn view(random: &mut RandomSequence, ordered: bool) -> View {
    loop {
        let depth = 1 + below(random, 4) as u32;
        let datatype =
            if ordered { ordered_datatype(random, depth) } else { datatype(random, depth) };
        let view = View::new(below(random, 50), datatype).ok();
        if let Some(view) = view.filter(|view| view.contains(0, 1)) {
            return view;
        }
    }
}

/// Displacements of the bytes of a datatype in the order of the data, by MPI's definition.
pub fn type_map(datatype: &Datatype) -> Vec<i64> {
    let copies = |count: u64, element: &Datatype, at: i64| -> Vec<i64> {
        let (map, extent) = (type_map(element), element.bounds().unwrap().extent());
        (0..count as i64).flat_map(|i| map.iter().map(move |d| d + at + i * extent)).collect()
    };
    match datatype {
        Datatype::Bytes(length) => (0..*length as i64).collect(),
        Datatype::Contiguous { count, element } => copies(*count, element, 0),
        Datatype::Vector { count, block, stride, element } => {
            (0..*count as i64).flat_map(|i| copies(*block, element, i * stride)).collect()
        }
        Datatype::Indexed { blocks, element } => {
            blocks.iter().flat_map(|b| copies(b.length, element, b.displacement)).collect()
        }
        Datatype::Struct { fields } => {
            fields.iter().flat_map(|f| copies(f.count, &f.datatype, f.displacement)).collect()
        }
        Datatype::Resized { element, .. } => type_map(element),
    }
}

/// File offset of a byte of a view's stream.
pub fn offset(view: &View, map: &[i64], position: u64) -> u64 {
    let extent = view.filetype().bounds().unwrap().extent();
    let (copy, byte) = (position as i64 / map.len() as i64, position as usize % map.len());
    (view.displacement() as i64 + copy * extent + map[byte]) as u64
}
