//! How a file's bytes are laid over the nodes of its instance.

use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

/// Smallest stripe: below it, the cost of a request outweighs what a further server adds.
pub const MIN_STRIPE: Bytes = Bytes(64 << 10);
/// Largest stripe, and the one used when nothing is known about a file.
pub const DEFAULT_STRIPE: Bytes = Bytes(1 << 20);

/// What is known of a file when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileHint {
    /// Its size, if known beforehand (a file that is staged in, for instance).
    pub size: Option<Bytes>,
    /// Stripe size that was asked for.
    pub stripe_size: Option<Bytes>,
    /// Number of servers that was asked for.
    pub stripe_count: Option<u32>,
}

/// A file's stripes: stripe `i` is on server `(first + i % count) % servers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Bytes in a stripe: a power of two times 4 KiB or what was asked for.
    pub stripe_size: Bytes,
    /// Servers the file is on, from 1 to the number of servers.
    pub count: u32,
    /// The server with the first stripe.
    pub first: u32,
}

impl Layout {
    /// The server, out of `servers`, that has the byte at `offset`.
    pub fn server(&self, offset: u64, servers: u32) -> u32 {
        let stripe = offset / self.stripe_size.0.max(1);
        let along = u32::try_from(stripe % u64::from(self.count.max(1))).unwrap_or(0);
        (self.first.wrapping_add(along)) % servers.max(1)
    }
}

/// Chooses the layout of the file with number `file` over `servers` servers.
///
/// A file that is known to be small stays on few servers, so that opening it costs few messages;
/// all others use every server. First stripes rotate with the file's number, so that many small
/// files spread evenly. Returns `None` if there is no server.
pub fn choose(file: u64, servers: u32, hint: &FileHint) -> Option<Layout> {
    if servers == 0 {
        return None;
    }
    let asked = hint.stripe_size.filter(|size| size.0 > 0);
    let stripe_size = match (asked, hint.size) {
        (Some(size), _) => size,
        (None, Some(size)) => {
            // Small enough that a file of middling size still uses several servers.
            let even = size
                .0
                .div_ceil(u64::from(servers))
                .max(1)
                .checked_next_power_of_two();
            Bytes(
                even.unwrap_or(DEFAULT_STRIPE.0)
                    .clamp(MIN_STRIPE.0, DEFAULT_STRIPE.0),
            )
        }
        (None, None) => DEFAULT_STRIPE,
    };
    let useful = match hint.size {
        Some(size) => u32::try_from(size.0.div_ceil(stripe_size.0))
            .unwrap_or(u32::MAX)
            .max(1),
        None => servers,
    };
    let count = hint
        .stripe_count
        .filter(|count| *count > 0)
        .unwrap_or(useful)
        .min(servers);
    let first = u32::try_from(file % u64::from(servers)).unwrap_or(0);
    Some(Layout {
        stripe_size,
        count,
        first,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_stay_on_one_server_and_rotate() {
        let hint = FileHint {
            size: Some(Bytes(10_000)),
            ..FileHint::default()
        };
        let layouts: Vec<Layout> = (0..4).filter_map(|file| choose(file, 4, &hint)).collect();
        assert!(layouts.iter().all(|l| l.count == 1));
        assert_eq!(
            layouts.iter().map(|l| l.first).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
    }

    #[test]
    fn large_files_use_every_server_evenly() {
        let hint = FileHint {
            size: Some(Bytes(1 << 30)),
            ..FileHint::default()
        };
        let layout = choose(6, 4, &hint).unwrap();
        assert_eq!(
            (layout.count, layout.first, layout.stripe_size),
            (4, 2, DEFAULT_STRIPE)
        );
        let mut bytes = [0u64; 4];
        for stripe in 0..1024 {
            bytes[layout.server(stripe << 20, 4) as usize] += 1 << 20;
        }
        assert_eq!(bytes, [256 << 20; 4]);
    }

    #[test]
    fn what_is_asked_for_is_given_within_the_servers() {
        let hint = FileHint {
            size: None,
            stripe_size: Some(Bytes(4096)),
            stripe_count: Some(9),
        };
        let layout = choose(0, 3, &hint).unwrap();
        assert_eq!((layout.stripe_size, layout.count), (Bytes(4096), 3));
        assert_eq!(choose(0, 0, &hint), None);
    }
}
