#![allow(clippy::unwrap_used)] // a test fails by panicking

use super::*;
use std::cell::RefCell;
use std::convert::Infallible;

const FIRST: u64 = 8192;

/// A file of three pages of zeros, of which the kernel has read the last one.
struct Mapped {
    contents: RefCell<Vec<u8>>,
    pages: MappedPages<()>,
    open: Arc<()>,
}

impl Mapped {
    fn new() -> Mapped {
        let mapped = Mapped {
            contents: RefCell::new(vec![0; 3 * PAGE_BYTES as usize]),
            pages: MappedPages::default(),
            open: Arc::new(()),
        };
        mapped.read_page();
        mapped
    }

    /// The kernel reads the page.
    fn read_page(&self) -> Vec<u8> {
        self.pages.read_pages(&self.open, FIRST..FIRST + PAGE_BYTES);
        self.contents.borrow()[FIRST as usize..].to_vec()
    }

    /// A program writes at an offset in the page, and `count` bytes are written.
    fn write_part(&self, at: usize, data: &[u8], count: usize) {
        let start = FIRST as usize + at;
        let read = |_: &(), into: &mut [u8]| {
            into.copy_from_slice(&self.contents.borrow()[start..start + data.len()]);
            Ok::<_, Infallible>(into.len())
        };
        let write = || {
            self.contents.borrow_mut()[start..start + count].copy_from_slice(&data[..count]);
            Ok(count)
        };
        assert_eq!(self.pages.write(start as u64, data, read, write), Ok(count));
    }

    fn write(&self, at: usize, data: &[u8]) {
        self.write_part(at, data, data.len());
    }

    /// The kernel writes the page.
    fn write_page(&self, page: &[u8]) {
        let write = |data: &[u8]| {
            self.contents.borrow_mut()[FIRST as usize..].copy_from_slice(data);
            Ok::<_, Infallible>(data.len())
        };
        self.pages.write_pages(FIRST, page, write).unwrap();
    }

    fn page(&self) -> Vec<u8> {
        self.contents.borrow()[FIRST as usize..].to_vec()
    }
}

#[test]
fn page_from_before_writes_does_not_undo_them() {
    let mapped = Mapped::new();
    let mut page = mapped.read_page();
    mapped.write(8, &[1; 8]);
    mapped.write(12, &[2; 8]); // over a part of the first one
    page[100] = 3;
    page[10] = 4; // both change this byte, and the map is later
    mapped.write_page(&page);
    let mut expected = vec![0; PAGE_BYTES as usize];
    expected[8..12].fill(1);
    expected[12..20].fill(2);
    (expected[100], expected[10]) = (3, 4);
    assert_eq!(mapped.page(), expected);
}

#[test]
fn stores_after_the_page_was_read_again_prevail() {
    let mapped = Mapped::new();
    mapped.write(8, &[1; 8]);
    let mut page = mapped.read_page();
    assert_eq!(page[8..16], [1; 8]);
    page[8..16].fill(0); // as before the write
    mapped.write_page(&page);
    assert_eq!(mapped.page(), vec![0; PAGE_BYTES as usize]);
}

#[test]
fn part_that_was_not_written_is_not_filled_in() {
    let mapped = Mapped::new();
    let page = mapped.read_page();
    mapped.write_part(8, &[1; 8], 3);
    mapped.write_page(&page);
    assert_eq!(mapped.page()[8..16], [1, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(mapped.pages.cached.read().as_ref().unwrap().lock().bytes, 3);
}

#[test]
fn page_that_is_read_during_a_write_does_not_undo_it() {
    let mapped = Mapped::new();
    let page = RefCell::new(Vec::new());
    let read = |_: &(), _: &mut [u8]| Ok::<_, Infallible>(8);
    let write = || {
        *page.borrow_mut() = mapped.read_page();
        mapped.contents.borrow_mut()[FIRST as usize..FIRST as usize + 8].fill(1);
        Ok(8)
    };
    mapped.pages.write(FIRST, &[1; 8], read, write).unwrap();
    mapped.write_page(&page.borrow());
    assert_eq!(mapped.page()[..9], [1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn memory_is_bounded_and_returns_when_pages_are_read() {
    let pages = MappedPages::default();
    let open = Arc::new(());
    pages.read_pages(&open, 0..PAGE_BYTES);
    let data = vec![1; 3 * PAGE_BYTES as usize];
    let write = |offset: u64| {
        let read = |_: &(), _: &mut [u8]| Ok::<_, Infallible>(0);
        pages.write(offset, &data, read, || Ok(data.len())).unwrap();
    };
    let held = || {
        let cached = pages.cached.read();
        let cached = cached.as_ref().unwrap().lock();
        let sum: usize = cached.pages.values().flatten().map(|part| part.after.len()).sum();
        assert_eq!(sum, cached.bytes);
        assert!(cached.order.len() <= MAX_PARTS);
        cached.bytes
    };
    for number in 0..2000 {
        write(number * 100);
        assert!(held() <= MAX_BYTES);
    }
    assert!(held() > MAX_BYTES / 2);
    pages.read_pages(&open, 0..u64::MAX / 2);
    assert_eq!(held(), 0);
    // Short writes to many pages.
    for page in 0..2 * MAX_PARTS as u64 {
        let read = |_: &(), _: &mut [u8]| Ok::<_, Infallible>(0);
        pages.write(page * PAGE_BYTES, &[1; 8], read, || Ok(8)).unwrap();
    }
    assert_eq!(held(), 8 * MAX_PARTS);
    pages.read_pages(&open, 0..u64::MAX / 2);
    assert_eq!(held(), 0);
    // Nothing is remembered of a file that no program maps any more.
    drop(open);
    write(0);
    assert_eq!(held(), 0);
}
