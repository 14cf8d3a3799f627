//! Variables and subarrays of NetCDF files in logged writes.

use forebay_mpiio_log::{Block, Datatype, Entry, NetcdfFile, Order, Place, Subarray, View};
use std::sync::Arc;

/// A header of version 1, 2 or 5 by the format's specification: dimensions `time` (unlimited), `y` of
/// 10 and `x` of 8; variables `mask(y, x)` of bytes at 1000, `t(time, y, x)` of doubles at 2000 and
/// `n(time, x)` of shorts at 2640.
fn header(version: u8) -> Vec<u8> {
    let mut bytes = vec![b'C', b'D', b'F', version];
    let word = |bytes: &mut Vec<u8>, value: u32| bytes.extend(value.to_be_bytes());
    let count = |bytes: &mut Vec<u8>, value: u32| {
        if version == 5 {
            bytes.extend(u64::from(value).to_be_bytes());
        } else {
            bytes.extend(value.to_be_bytes());
        }
    };
    let name = |bytes: &mut Vec<u8>, text: &str| {
        count(bytes, text.len() as u32);
        bytes.extend(text.bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    };
    count(&mut bytes, 2); // records
    word(&mut bytes, 0x0a);
    count(&mut bytes, 3);
    for (dimension, length) in [("time", 0), ("y", 10), ("x", 8)] {
        name(&mut bytes, dimension);
        count(&mut bytes, length);
    }
    word(&mut bytes, 0x0c);
    count(&mut bytes, 1);
    name(&mut bytes, "title");
    word(&mut bytes, 2);
    count(&mut bytes, 5);
    bytes.extend(b"ocean\0\0\0");
    word(&mut bytes, 0x0b);
    count(&mut bytes, 3);
    let variables: [(&str, &[u32], u32, u32); 3] =
        [("mask", &[1, 2], 1, 1000), ("t", &[0, 1, 2], 6, 2000), ("n", &[0, 2], 3, 2640)];
    for (variable, dimensions, datatype, begin) in variables {
        name(&mut bytes, variable);
        count(&mut bytes, dimensions.len() as u32);
        dimensions.iter().for_each(|dimension| count(&mut bytes, *dimension));
        word(&mut bytes, 0);
        count(&mut bytes, 0);
        word(&mut bytes, datatype);
        count(&mut bytes, 0);
        if version == 1 {
            word(&mut bytes, begin);
        } else {
            bytes.extend(u64::from(begin).to_be_bytes());
        }
    }
    bytes
}

fn file() -> NetcdfFile {
    NetcdfFile::parse(&header(5)).unwrap()
}

/// A write of `length` bytes through a view.
fn entry(displacement: u64, filetype: Datatype, length: u64) -> Entry {
    Entry {
        order: Order { epoch: 0, rank: 0, sequence: 1 },
        view: Arc::new(View::new(displacement, filetype).unwrap()),
        position: 0,
        length,
        place: Place { log: 0, offset: 0 },
    }
}

/// Variable, start, count, bytes and whether the box is whole.
type Short<'a> = (usize, &'a [u64], &'a [u64], u64, bool);

fn short(found: &[Subarray]) -> Vec<Short<'_>> {
    found.iter().map(|f| (f.variable, &f.start[..], &f.count[..], f.bytes, f.is_whole)).collect()
}

#[test]
fn header_of_each_version_is_understood() {
    for version in [1, 2, 5] {
        let file = NetcdfFile::parse(&header(version)).unwrap();
        let names: Vec<_> = file.variables.iter().map(|v| (&v.name[..], v.datatype)).collect();
        assert_eq!(names, [("mask", "byte"), ("t", "double"), ("n", "short")]);
        let t = &file.variables[1];
        assert!(t.is_record && t.shape == [10, 8] && (t.begin, t.bytes) == (2000, 640));
    }
}

#[test]
fn incomplete_headers_and_noise_are_refused() {
    let whole = header(2);
    for length in 0..whole.len() {
        assert_eq!(NetcdfFile::parse(&whole[..length]), None, "{length} bytes");
    }
    for byte in 0..whole.len() {
        let mut noise = whole.clone();
        noise[byte] = 0xff;
        // Whatever it means, it must neither panic nor allocate what a damaged count says.
        let _ = NetcdfFile::parse(&noise);
    }
    assert_eq!(NetcdfFile::parse(b"CDF\x04"), None);
    assert_eq!(NetcdfFile::parse(b"\x89HDF\r\n\x1a\n"), None);
}

#[test]
fn subarray_of_a_variable_is_found_in_a_view() {
    // Rows 2 to 4, columns 3 to 7 of `mask`.
    let part = Datatype::subarray(&[10, 8], &[3, 5], &[2, 3], 1).unwrap();
    let found = file().subarrays(&entry(1000, part, 15));
    assert_eq!(short(&found), [(0, &[2, 3][..], &[3, 5][..], 15, true)]);
}

#[test]
fn contiguous_rows_and_parts_of_rows_are_distinguished() {
    let found = file().subarrays(&entry(1016, Datatype::Bytes(24), 24));
    assert_eq!(short(&found), [(0, &[2, 0][..], &[3, 8][..], 24, true)]);
    // From the middle of row 2 to the middle of row 4.
    let found = file().subarrays(&entry(1020, Datatype::Bytes(16), 16));
    assert_eq!(short(&found), [(0, &[2, 0][..], &[3, 8][..], 16, false)]);
}

#[test]
fn records_have_the_index_of_their_step() {
    // A record of all variables has 640 + 16 bytes. Rows 5 and 6 of `t` at step 1.
    let found = file().subarrays(&entry(2000 + 656 + 5 * 64, Datatype::Bytes(128), 128));
    assert_eq!(short(&found), [(1, &[1, 5, 0][..], &[1, 2, 8][..], 128, true)]);
    // All of steps 2 and 3, of both variables.
    let found = file().subarrays(&entry(2000 + 2 * 656, Datatype::Bytes(1312), 1312));
    let expected =
        [(1, &[2, 0, 0][..], &[2, 10, 8][..], 1280, true), (2, &[2, 0][..], &[2, 8][..], 32, true)];
    assert_eq!(short(&found), expected);
}

#[test]
fn header_and_padding_belong_to_no_variable() {
    assert!(file().subarrays(&entry(0, Datatype::Bytes(1000), 1000)).is_empty());
    assert!(file().subarrays(&entry(1080, Datatype::Bytes(920), 920)).is_empty());
    // One write of the header, `mask`, and the first element of `t`.
    let block = |displacement, length| Block { displacement, length };
    let blocks = vec![block(0, 100), block(1000, 80), block(2000, 8)];
    let element = Arc::new(Datatype::Bytes(1));
    let found = file().subarrays(&entry(0, Datatype::Indexed { blocks, element }, 188));
    let expected =
        [(0, &[0, 0][..], &[10, 8][..], 80, true), (1, &[0, 0, 0][..], &[1, 1, 1][..], 8, true)];
    assert_eq!(short(&found), expected);
}

#[test]
fn single_record_variable_of_bytes_is_not_padded() {
    let mut bytes = b"CDF\x01\0\0\0\0".to_vec();
    // Dimensions `t` (unlimited) and `x` of 3; variable `b(t, x)` of bytes at 200.
    for word in [0x0a, 2, 1, 0x7400_0000, 0, 1, 0x7800_0000, 3, 0, 0, 0x0b, 1, 1, 0x6200_0000] {
        bytes.extend(u32::to_be_bytes(word));
    }
    for word in [2, 0, 1, 0, 0, 1, 4, 200_u32] {
        bytes.extend(word.to_be_bytes());
    }
    let file = NetcdfFile::parse(&bytes).unwrap();
    let found = file.subarrays(&entry(206, Datatype::Bytes(3), 3));
    assert_eq!(short(&found), [(0, &[2, 0][..], &[1, 3][..], 3, true)]);
}
