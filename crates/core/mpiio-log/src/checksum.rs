//! CRC-32C, with the processor's instructions for products of polynomials where it has them: the
//! checksum of large writes must not take long beside their way to the file.

use crc_fast::{CrcAlgorithm::Crc32Iscsi, Digest};

/// CRC-32C of bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of bytes behind others, whose checksum is `sum`.
pub(crate) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(!sum));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_append};

    /// CRC-32C bit by bit.
    fn slow(sum: u32, bytes: &[u8]) -> u32 {
        let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        !bytes
            .iter()
            .fold(!sum, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
    }

    #[test]
    fn check_value_is_that_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[]), 0);
    }

    #[test]
    fn sums_of_all_lengths_and_starts_are_those_of_the_polynomial() {
        let bytes: Vec<u8> =
            (0..5000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let lengths = (0..300).chain([511, 512, 1000, 1024, 2047, 4096, 4999]);
        for length in lengths {
            let sum = slow(0, &bytes[..length]);
            assert_eq!(crc32c(&bytes[..length]), sum, "{length} bytes");
            let shifted = &bytes[1..][..length];
            assert_eq!(crc32c_append(0x1234_5678, shifted), slow(0x1234_5678, shifted));
            for cut in [0, 1, length / 3, length] {
                let first = crc32c(&bytes[..cut.min(length)]);
                assert_eq!(crc32c_append(first, &bytes[cut.min(length)..length]), sum);
            }
        }
    }
}
