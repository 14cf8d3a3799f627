//! Numbers in either byte order.

/// Byte order of a log: that of the machine on which the program ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

/// Reads fixed fields one after another. Behind the end all fields are 0: callers have checked the length.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Fields<'a> {
        Fields { bytes, order }
    }

    /// The next bytes: as many as there are, up to `count`.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.take(N);
        debug_assert_eq!(taken.len(), N, "a record is shorter than its fields");
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub fn u32(&mut self) -> u32 {
        let bytes = self.array();
        match self.order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    pub fn u64(&mut self) -> u64 {
        let bytes = self.array();
        match self.order {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    pub fn i64(&mut self) -> i64 {
        self.u64().cast_signed()
    }

    pub fn f64(&mut self) -> f64 {
        f64::from_bits(self.u64())
    }
}

/// Text up to the first NUL, with replacements for what is not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
