//! Datatypes and views: their bytes, bounds and encodings.

use crate::random;
use forebay_mpiio_log::{Block, Datatype, DecodeError, Field, InvalidDatatype, Segment, View};
use forebay_random::RandomSequence;
use random::{below, offset, type_map, view};
use std::sync::Arc;

fn bytes(length: u64) -> Arc<Datatype> {
    Arc::new(Datatype::Bytes(length))
}

#[test]
fn segments_are_those_of_the_type_map() {
    let mut scattered = 0;
    for seed in 0..1500 {
        let mut random = RandomSequence::new(seed);
        let view = view(&mut random, seed % 2 == 0);
        let map = type_map(view.filetype());
        assert_eq!(view.filetype().size().unwrap(), map.len() as u64);
        let position = below(&mut random, 3 * map.len() as u64);
        let length = below(&mut random, 3 * map.len() as u64);
        let expected: Vec<u64> =
            (position..position + length).map(|p| offset(&view, &map, p)).collect();
        let segments: Vec<Segment> = view.segments(position, length).collect();
        let found: Vec<u64> = segments.iter().flat_map(|s| s.offset..s.end()).collect();
        assert_eq!(found, expected, "seed {seed}: {view:?}");
        assert!(segments.windows(2).all(|pair| pair[0].end() != pair[1].offset), "seed {seed}");
        let mut stream = position;
        for segment in &segments {
            assert_eq!(segment.stream, stream);
            stream += segment.length;
        }
        let hull = view.hull(position, length);
        assert!(expected.iter().all(|at| hull.contains(at)), "seed {seed}: {hull:?}");
        scattered += usize::from(segments.len() > 3);
        if !view.is_ordered() {
            continue;
        }
        if let (Some(first), Some(last)) = (expected.first(), expected.last()) {
            assert_eq!(hull, *first..last + 1, "seed {seed}");
        }
        for bound in (seed % 5..200).step_by(5) {
            let below = (0..).take_while(|p| offset(&view, &map, *p) < bound).count() as u64;
            assert_eq!(view.stream_position(bound), below, "seed {seed}, {bound}: {view:?}");
        }
    }
    assert!(scattered > 150, "{scattered} views with several segments");
}

#[test]
fn views_of_increasing_offsets_are_ordered() {
    for seed in 0..2000 {
        let mut random = RandomSequence::new(seed);
        let view = view(&mut random, seed % 2 == 0);
        let map = type_map(view.filetype());
        let increases =
            (1..2 * map.len() as u64).all(|p| offset(&view, &map, p - 1) < offset(&view, &map, p));
        assert_eq!(view.is_ordered(), increases, "seed {seed}: {view:?}");
    }
}

#[test]
fn bounds_are_those_of_the_standard() {
    let bounds = |datatype: &Datatype| {
        let bounds = datatype.bounds().unwrap();
        (bounds.lower, bounds.extent())
    };
    // Three blocks of two 4-byte elements every 16 bytes: 2 * 16 + 8.
    let vector = Datatype::Vector { count: 3, block: 2, stride: 16, element: bytes(4) };
    assert_eq!(bounds(&vector), (0, 40));
    let backwards = Datatype::Vector { count: 3, block: 1, stride: -16, element: bytes(4) };
    assert_eq!(bounds(&backwards), (-32, 36));
    let blocks = vec![Block { displacement: 30, length: 1 }, Block { displacement: 8, length: 2 }];
    assert_eq!(bounds(&Datatype::Indexed { blocks, element: bytes(4) }), (8, 26));
    // An explicit bound overrides the natural bounds beside it.
    let resized = Datatype::Resized { lower_bound: -4, extent: 12, element: bytes(4) };
    let field = |displacement, datatype| Field { displacement, count: 1, datatype };
    let fields = vec![field(0, resized.clone()), field(100, Datatype::Bytes(4))];
    assert_eq!(bounds(&Datatype::Struct { fields }), (-4, 12));
    let two = Datatype::Contiguous { count: 2, element: Arc::new(resized) };
    assert_eq!(bounds(&two), (-4, 24));
    assert_eq!(bounds(&Datatype::Bytes(0)), (0, 0));
}

#[test]
fn subarray_selects_its_rows() {
    // Rows 1 and 2, columns 2 to 4 of a matrix of 4 x 6 elements of 8 bytes.
    let part = Datatype::subarray(&[4, 6], &[2, 3], &[1, 2], 8).unwrap();
    let view = View::new(1000, part).unwrap();
    let rows: Vec<_> = view.segments(0, 72).map(|s| (s.offset, s.length)).collect();
    // The second copy of the file type begins after the matrix: 1000 + 192 + (6 + 2) * 8.
    assert_eq!(rows, [(1064, 24), (1112, 24), (1256, 24)]);
}

#[test]
fn regular_subarray_has_constant_size_in_memory_and_in_the_log() {
    let encoded = |rows: u64| {
        let part = Datatype::subarray(&[rows, 1000], &[rows, 10], &[0, 5], 8).unwrap();
        let view = View::new(0, part).unwrap();
        assert_eq!(view.segments(0, rows * 80).count() as u64, rows);
        view.encoded().len()
    };
    assert!(encoded(100_000) <= encoded(10) + 6, "only the numbers have more digits");
}

#[test]
fn list_of_regular_blocks_is_found_as_fast_as_a_vector() {
    // A million blocks: a search or a walk over them for each segment would take seconds.
    let block = |i: i64| Block { displacement: i * 32, length: 1 };
    let blocks: Vec<_> = (0..1_000_000).map(block).collect();
    let view = View::new(0, Datatype::Indexed { blocks, element: bytes(8) }).unwrap();
    let (segment, end) = (view.segments(8_000_000 - 8, 8).next().unwrap(), 999_999 * 32);
    assert_eq!((segment.offset, segment.length), (end, 8));
    assert_eq!(view.stream_position(end + 3), 8_000_000 - 8 + 3);
}

#[test]
fn views_survive_encoding_and_noise_is_refused() {
    for seed in 0..2000 {
        let mut random = RandomSequence::new(seed);
        let view = view(&mut random, seed % 2 == 0);
        assert_eq!(View::decode(view.encoded()).unwrap(), view);
        for length in 0..view.encoded().len() {
            assert!(View::decode(&view.encoded()[..length]).is_err(), "seed {seed}");
        }
        let mut noise = view.encoded().to_vec();
        let at = below(&mut random, noise.len() as u64) as usize;
        noise[at] ^= 1 << below(&mut random, 8);
        // Whatever it means now, it must not panic.
        if let Ok(other) = View::decode(&noise) {
            assert!(!other.contains(0, 100) || other.segments(0, 100).count() > 0);
        }
    }
    assert_eq!(View::decode(&[0, 1, 3, 0, 8, 9]), Err(DecodeError::Trailing));
}

#[test]
fn view_that_was_moved_is_the_view_at_its_displacement() {
    for seed in 0..500 {
        let mut random = RandomSequence::new(seed);
        let view = view(&mut random, seed % 2 == 0);
        let displacement = view.displacement() + below(&mut random, 100_000);
        let moved = view.at(displacement).unwrap();
        let expected = View::new(displacement, view.filetype().clone()).unwrap();
        assert_eq!((moved.encoded(), moved.displacement()), (expected.encoded(), displacement));
        assert_eq!(moved.is_ordered(), expected.is_ordered());
        let length = below(&mut random, 300);
        assert!(moved.segments(3, length).eq(expected.segments(3, length)), "seed {seed}");
    }
    let blocks = vec![Block { displacement: -8, length: 1 }];
    let before = View::new(100, Datatype::Indexed { blocks, element: bytes(8) }).unwrap();
    assert_eq!(before.at(7).unwrap_err(), InvalidDatatype::NegativeOffset);
}

#[test]
fn invalid_file_types_are_refused() {
    let error = |displacement, datatype| View::new(displacement, datatype).unwrap_err();
    let mut deep = Datatype::Bytes(1);
    for _ in 0..70 {
        deep = Datatype::Contiguous { count: 1, element: Arc::new(deep) };
    }
    assert_eq!(error(0, deep), InvalidDatatype::TooDeep);
    let huge = Datatype::Contiguous { count: u64::MAX, element: bytes(8) };
    assert_eq!(error(0, huge), InvalidDatatype::TooLarge);
    let flat = Datatype::Resized { lower_bound: 0, extent: 0, element: bytes(8) };
    assert_eq!(error(0, flat), InvalidDatatype::BadExtent);
    let before = Datatype::Vector { count: 2, block: 1, stride: -16, element: bytes(4) };
    assert_eq!(error(15, before.clone()), InvalidDatatype::NegativeOffset);
    assert!(View::new(16, before).is_ok());
}

#[test]
fn writes_behind_the_largest_offset_are_not_contained() {
    let view = View::bytes(0);
    assert!(view.contains(0, i64::MAX as u64));
    assert!(!view.contains(1, i64::MAX as u64));
    assert!(!view.contains(u64::MAX, 2));
    let empty = View::new(0, Datatype::Bytes(0)).unwrap();
    assert!(empty.contains(0, 0) && !empty.contains(0, 1));
}

/// Blocks at irregular places, each of one element.
fn scattered(element: Datatype) -> Datatype {
    let extent = element.bounds().unwrap().extent();
    let places = [0, 2, 3].map(|place| Block { displacement: place * extent, length: 1 });
    Datatype::Indexed { blocks: places.into(), element: Arc::new(element) }
}

#[test]
fn nested_lists_need_no_more_memory_than_their_encoding_allows() {
    let mut nested = Datatype::Bytes(1);
    for _ in 0..25 {
        nested = scattered(nested);
    }
    // 3^25 runs, in few bytes.
    let view = View::new(0, nested.clone()).unwrap();
    assert!(view.encoded().len() < 600 && view.memory() < 100_000, "{}", view.memory());
    assert_eq!(View::decode(view.encoded()).unwrap(), view);
    let offsets = |view: &View, from| -> Vec<u64> {
        view.segments(from, 9).flat_map(|part| part.offset..part.end()).collect()
    };
    assert_eq!(offsets(&view, 0), [0, 2, 3, 8, 10, 11, 12, 14, 15]);
    let last = 4_u64.pow(25) - 1;
    assert_eq!(offsets(&view, 3_u64.pow(25) - 9)[8], last);

    // Equal parts are found without comparing all that they contain.
    let field = |displacement| Field { displacement, count: 1, datatype: nested.clone() };
    let length = 4_i64.pow(25);
    let pair = Datatype::Struct { fields: vec![field(0), field(length + 8)] };
    let pair = View::new(0, pair).unwrap();
    assert_eq!(offsets(&pair, 3_u64.pow(25))[0], length as u64 + 8);
}

#[test]
fn views_with_more_parts_than_a_log_may_have_are_refused_there_and_valid_elsewhere() {
    let blocks = (0..5_000_000).map(|at| Block { displacement: 3 * at + at % 2, length: 1 });
    let many = Datatype::Indexed { blocks: blocks.collect(), element: bytes(1) };
    let view = View::new(0, many).unwrap();
    assert!(view.segments(4_999_999, 1).next().unwrap().offset == 3 * 4_999_999 + 1);
    assert_eq!(
        View::decode(view.encoded()).unwrap_err(),
        DecodeError::Datatype(InvalidDatatype::TooManyParts)
    );
}
