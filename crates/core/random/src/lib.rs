//! Seeded random numbers and hashes, as pure functions of (seed, stream, counter).
//!
//! A value depends on three numbers only, so neither the order in which a simulator takes its
//! decisions nor the number of threads can change it. All arithmetic is on 64-bit integers, or on
//! IEEE doubles by operations whose results the standard fixes (the logarithm comes from `libm`,
//! not from the system), so values are the same on every platform.
//!
//! For a fixed seed and stream, the values over the counter are the sequence of SplitMix64
//! (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#![warn(missing_docs)]

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function: a bijection of 64-bit numbers in which every input bit flips
/// every output bit with probability near one half. Maps 0 to 0.
#[inline]
pub const fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash of one number: SplitMix64's first output for this state.
#[inline]
pub const fn hash_number(value: u64) -> u64 {
    mix(value.wrapping_add(GAMMA))
}

/// A number for a stream's name (FNV-1a), so that streams for different purposes differ even if
/// both count from 0.
pub const fn stream_label(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The random number at `counter` of stream `stream` of `seed`.
#[inline]
pub const fn hash(seed: u64, stream: u64, counter: u64) -> u64 {
    RandomStream::new(seed, stream).at(counter)
}

/// One stream of random numbers, addressed by counter. `Copy`; eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomStream {
    start: u64,
}

impl RandomStream {
    /// The stream number `stream` of `seed`.
    #[inline]
    pub const fn new(seed: u64, stream: u64) -> Self {
        RandomStream { start: mix(hash_number(seed) ^ stream.wrapping_mul(GAMMA)) }
    }

    /// The stream for a purpose (a [`stream_label`]) of one of many units, such as a node or a job.
    /// The streams of a unit with several seeds, and of several units with a seed, have nothing in
    /// common: each begins at a hash of the three numbers.
    #[inline]
    pub const fn of_unit(seed: u64, label: u64, unit: u64) -> Self {
        RandomStream::new(hash(seed, label, unit), label)
    }

    /// The number at `counter`; equal to [`hash`] of this stream's seed and number.
    #[inline]
    pub const fn at(self, counter: u64) -> u64 {
        mix(self.start.wrapping_add(counter.wrapping_add(1).wrapping_mul(GAMMA)))
    }
}

/// A generator with state: SplitMix64, for code that draws in a fixed order.
#[derive(Clone, Debug)]
pub struct RandomSequence {
    state: u64,
}

impl RandomSequence {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        RandomSequence { state: seed }
    }

    /// The sequence for a purpose of one of many units: the numbers of
    /// [`RandomStream::of_unit`] in order.
    pub const fn of_unit(seed: u64, label: u64, unit: u64) -> Self {
        RandomSequence { state: RandomStream::of_unit(seed, label, unit).start }
    }

    /// The next 64-bit number.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// The next number in `0..bound`; each value's probability differs from `1 / bound` by less
    /// than 2^-32.
    #[inline]
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next_u64() >> 32) * bound as u64) >> 32) as u32
    }
}

/// A number in `0..bound` from a random 64-bit number; 0 if `bound` is 0.
///
/// Taken by multiplication: each value's probability differs from `1 / bound` by less than 2^-64.
#[inline]
pub const fn below(random: u64, bound: u64) -> u64 {
    ((random as u128 * bound as u128) >> 64) as u64
}

/// A number in (0, 1], a multiple of 2^-53, from a random 64-bit number.
#[inline]
pub const fn unit_interval(random: u64) -> f64 {
    ((random >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// A number of the exponential distribution with mean 1, from a random 64-bit number: between 0
/// and 36.74 (the largest that 53 random bits can give).
#[inline]
pub fn exponential(random: u64) -> f64 {
    -libm::log(unit_interval(random))
}

/// A bijection of `0..domain`, chosen by a key and computed for each index independently: a
/// shuffled order without a table.
///
/// A Feistel network of six rounds over the next power of two, with cycle walking: an image outside
/// the domain is mapped again until it falls inside, at most twice on average (Black, Rogaway,
/// "Ciphers with arbitrary finite domains", CT-RSA 2002).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    domain: u64,
    key: u64,
    low_bits: u32,
    high_bits: u32,
}

impl Permutation {
    const ROUNDS: u64 = 3;

    /// The permutation of `0..domain` selected by `key`.
    pub const fn new(domain: u64, key: u64) -> Self {
        let bits = if domain < 2 { 0 } else { 64 - (domain - 1).leading_zeros() };
        let low_bits = bits - bits / 2;
        Permutation { domain, key, low_bits, high_bits: bits / 2 }
    }

    /// The image of `index`. An index outside the domain is returned unchanged.
    #[inline]
    pub const fn apply(self, index: u64) -> u64 {
        if index >= self.domain || self.domain < 2 {
            return index;
        }
        let mut image = self.once(index);
        while image >= self.domain {
            image = self.once(image);
        }
        image
    }

    #[inline]
    const fn once(self, index: u64) -> u64 {
        let low_mask = (1_u64 << self.low_bits) - 1;
        let high_mask = (1_u64 << self.high_bits) - 1;
        let mask = high_mask << self.low_bits | low_mask;
        let mut image = index;
        let mut round = 0;
        while round < Self::ROUNDS {
            // Feistel rounds alone give even permutations only; a rotation breaks that.
            image = image.wrapping_add(self.key >> (16 * round)) & mask;
            let (mut low, mut high) = (image & low_mask, image >> self.low_bits);
            high ^= RandomStream { start: self.key ^ low }.at(2 * round) & high_mask;
            low ^= RandomStream { start: self.key ^ high }.at(2 * round + 1) & low_mask;
            image = high << self.low_bits | low;
            round += 1;
        }
        image
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stream_equals_reference_splitmix64() {
        // First outputs of the reference implementation for the state 1234567.
        let stream = RandomStream { start: 1_234_567 };
        assert_eq!(stream.at(0), 6_457_827_717_110_365_317);
        assert_eq!(stream.at(1), 3_203_168_211_198_807_973);
        assert_eq!(stream.at(2), 9_817_491_932_198_370_423);
    }

    #[test]
    fn sequence_equals_stream_of_the_same_state() {
        let stream = RandomStream { start: 77 };
        let mut sequence = RandomSequence::new(77);
        for counter in 0..5 {
            assert_eq!(sequence.next_u64(), stream.at(counter));
        }
    }

    #[test]
    fn known_inputs_give_recorded_values() {
        // A change here changes every seeded result and needs a new version of the documents.
        assert_eq!(hash(1, 2, 3), 1_837_761_060_917_858_051);
        assert_eq!(stream_label("placement"), 10_998_637_224_042_777_120);
        assert_eq!(exponential(hash(0, 0, 0)).to_bits(), 0x3ff15a5582bd815a);
    }

    #[test]
    fn distinct_seeds_streams_and_counters_give_distinct_values() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..20 {
            for stream in 0..20 {
                for counter in 0..20 {
                    assert!(seen.insert(hash(seed, stream, counter)));
                }
            }
        }
    }

    #[test]
    fn units_and_seeds_share_no_part_of_their_streams() {
        let label = stream_label("test");
        let mut seen = std::collections::HashSet::new();
        for seed in 0..8 {
            for unit in 0..64 {
                for counter in 0..16 {
                    assert!(seen.insert(RandomStream::of_unit(seed, label, unit).at(counter)));
                }
            }
        }
        let mut sequence = RandomSequence::of_unit(3, label, 5);
        let stream = RandomStream::of_unit(3, label, 5);
        assert_eq!([sequence.next_u64(), sequence.next_u64()], [stream.at(0), stream.at(1)]);
    }

    #[test]
    fn below_is_uniform() {
        let mut counts = [0_u32; 7];
        for i in 0..70_000 {
            counts[below(hash(5, 0, i), 7) as usize] += 1;
        }
        assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
        assert_eq!(below(u64::MAX, 7), 6);
        assert_eq!(below(u64::MAX, 0), 0);
    }

    #[test]
    fn exponential_has_mean_and_variance_one() {
        let n = 200_000;
        let values: Vec<f64> = (0..n).map(|i| exponential(hash(7, 0, i))).collect();
        let mean = values.iter().sum::<f64>() / n as f64;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
        assert_eq!(exponential(u64::MAX), 0.0);
        assert!(exponential(0) < 36.75);
    }

    #[test]
    fn permutation_of_five_reaches_all_120_orders() {
        let mut orders = std::collections::HashMap::new();
        for key in 0..24_000 {
            let p = Permutation::new(5, mix(key));
            let order: Vec<u64> = (0..5).map(|i| p.apply(i)).collect();
            *orders.entry(order).or_insert(0_u32) += 1;
        }
        assert_eq!(orders.len(), 120);
        // The mean is 200; so small a network stays within a factor of about two.
        assert!(orders.values().all(|&c| (80..450).contains(&c)), "{orders:?}");
        // Each index maps to each image; the mean is 4,800.
        for index in 0..5 {
            for image in 0..5 {
                let count: u32 =
                    orders.iter().filter(|(o, _)| o[index] == image).map(|(_, c)| c).sum();
                assert!((4_300..5_300).contains(&count), "{index} to {image}: {count}");
            }
        }
    }

    proptest! {
        #[test]
        fn permutation_is_a_bijection(domain in 0_u64..3000, key: u64) {
            let p = Permutation::new(domain, key);
            let mut images: Vec<u64> = (0..domain).map(|i| p.apply(i)).collect();
            images.sort_unstable();
            prop_assert_eq!(images, (0..domain).collect::<Vec<_>>());
        }

        #[test]
        fn permutation_of_huge_domain_stays_in_domain(domain in 1_u64.., key: u64, index: u64) {
            let index = index % domain;
            prop_assert!(Permutation::new(domain, key).apply(index) < domain);
        }
    }
}
