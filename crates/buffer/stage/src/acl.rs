//! Access control lists (`acl(5)`) that a copy cannot have, in the format of Linux's extended attributes: a
//! version of 4 bytes, and entries of 8 bytes with tag, permissions and user or group.

/// Tags of entries, from `linux/posix_acl.h`.
mod tag {
    pub const USER: u16 = 0x02;
    pub const OWNING_GROUP: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
}

/// The permission bits of a copy without the list of its source, which has `mode`: with the list, the bits of
/// the group are the most that any user or group of the list may do. Without it, a user of the list may do
/// what his group, or all others, may do. So these get no more than any of those had.
pub(crate) fn mode_without_list(list: &[u8], mode: u32) -> u32 {
    let class = |shift: u32| mode >> shift & 0o7;
    let mask = class(3);
    let (mut group, mut others) = (mask, class(0));
    let Some((_, entries)) = list.split_first_chunk::<4>() else {
        return mode & !0o077;
    };
    let (entries, rest) = entries.as_chunks::<8>();
    if !rest.is_empty() {
        return mode & !0o077;
    }
    for [tag_low, tag_high, bits_low, bits_high, ..] in entries {
        let bits = u32::from(u16::from_le_bytes([*bits_low, *bits_high]));
        match u16::from_le_bytes([*tag_low, *tag_high]) {
            tag::OWNING_GROUP => group &= bits,
            tag::USER => {
                group &= bits;
                others &= bits & mask;
            }
            // A member who is in the owning group, too, had the permissions of both.
            tag::GROUP => others &= bits & mask,
            _ => {}
        }
    }
    mode & !0o077 | group << 3 | others
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, permissions) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(7u32.to_le_bytes());
        }
        bytes
    }

    /// Entries of a list, the mode beside it, and the mode without it.
    type Case = (&'static [(u16, u16)], u32, u32);

    #[test]
    fn nobody_gets_more_than_the_list_gave() {
        // Owner, owning group, mask, others; then those of the list.
        let cases: [Case; 6] = [
            (&[(1, 6), (2, 6), (4, 0), (16, 6), (32, 0)], 0o660, 0o600),
            (&[(1, 7), (2, 7), (4, 5), (16, 7), (32, 5)], 0o2775, 0o2755),
            // A user whom the list refuses is in the group, or among all others.
            (&[(1, 7), (2, 0), (4, 5), (16, 5), (32, 5)], 0o755, 0o700),
            (&[(1, 7), (4, 5), (8, 4), (16, 5), (32, 5)], 0o755, 0o754),
            // The mask limits what the list says.
            (&[(1, 6), (2, 6), (4, 6), (16, 4), (32, 6)], 0o646, 0o644),
            (&[(1, 6), (4, 4), (32, 4)], 0o644, 0o644),
        ];
        for (entries, mode, expected) in cases {
            let without = mode_without_list(&list(entries), mode);
            assert_eq!(without, expected, "{without:o} for {entries:?} with mode {mode:o}");
        }
        for damaged in [&b""[..], b"\x02\0", b"\x02\0\0\0\x01"] {
            assert_eq!(mode_without_list(damaged, 0o4775), 0o4700);
        }
    }
}
