//! Samples of bounded size that are the same for any number of threads.

use forebay_random::{hash, stream_label};

/// Selects messages by the hash of their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampler {
    /// Hashes up to this one are selected.
    threshold: u64,
}

impl Sampler {
    /// Selects one of `n` messages on average; of 0, as of 1, all.
    pub fn one_in(n: u64) -> Self {
        Sampler { threshold: u64::MAX / n.max(1) }
    }

    /// Share of the messages that is selected.
    pub fn share(self) -> f64 {
        self.threshold as f64 / u64::MAX as f64
    }

    /// The hash of a message: tags of traffic, and all others, are numbered on their own.
    pub fn hash_of(tag: u64, is_traffic: bool) -> u64 {
        hash(tag, stream_label("trace"), u64::from(is_traffic))
    }

    /// Whether a message is selected.
    pub fn selects(self, tag: u64, is_traffic: bool) -> bool {
        Self::hash_of(tag, is_traffic) <= self.threshold
    }

    /// The sampler that selects what both do.
    pub fn least(self, other: Sampler) -> Sampler {
        Sampler { threshold: self.threshold.min(other.threshold) }
    }
}

/// Records of sampled messages. When it is full, it halves the share of messages, and drops the
/// records of those that are no longer selected.
#[derive(Clone, Debug)]
pub struct SampleBuffer<T> {
    sampler: Sampler,
    most: usize,
    records: Vec<(u64, T)>,
}

impl<T> SampleBuffer<T> {
    /// A buffer of at most `most` records.
    pub fn new(sampler: Sampler, most: usize) -> Self {
        SampleBuffer { sampler, most, records: Vec::new() }
    }

    /// The present sampler: of what its messages did, nothing is missing.
    pub fn sampler(&self) -> Sampler {
        self.sampler
    }

    /// Adds a record of a message, if that is selected.
    #[inline]
    pub fn push(&mut self, tag: u64, is_traffic: bool, record: impl FnOnce() -> T) {
        let hash = Sampler::hash_of(tag, is_traffic);
        if hash > self.sampler.threshold {
            return;
        }
        if self.records.len() >= self.most {
            self.thin_out();
            if hash > self.sampler.threshold || self.records.len() >= self.most {
                return;
            }
        }
        self.records.push((hash, record()));
    }

    /// Halves the share of messages until half of the places are free.
    #[cold]
    fn thin_out(&mut self) {
        while self.records.len() > self.most / 2 && self.sampler.threshold > 0 {
            self.sampler.threshold /= 2;
            let threshold = self.sampler.threshold;
            self.records.retain(|(hash, _)| *hash <= threshold);
        }
    }

    /// The records of messages that `sampler` selects, too, in the order in which they were added.
    pub fn into_records(self, sampler: Sampler) -> impl Iterator<Item = T> {
        let threshold = sampler.least(self.sampler).threshold;
        let selected = self.records.into_iter().filter(move |(hash, _)| *hash <= threshold);
        selected.map(|(_, record)| record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_messages_is_selected_whatever_their_tags() {
        let sampler = Sampler::one_in(100);
        let selected = (0..100_000).filter(|tag| sampler.selects(*tag, true)).count();
        assert!((800..1_200).contains(&selected), "{selected}");
        assert!((0..1_000).all(|tag| Sampler::one_in(1).selects(tag, false)));
    }

    #[test]
    fn full_buffer_keeps_fewer_messages_but_all_records_of_each() {
        let mut buffer = SampleBuffer::new(Sampler::one_in(1), 1_000);
        for round in 0..5 {
            for tag in 0..1_000 {
                buffer.push(tag, false, || (tag, round));
            }
        }
        let sampler = buffer.sampler();
        assert!(sampler.share() <= 0.25);
        let kept: Vec<(u64, i32)> = buffer.into_records(sampler).collect();
        let tags: Vec<u64> = (0..1_000).filter(|tag| sampler.selects(*tag, false)).collect();
        let expected: Vec<(u64, i32)> =
            (0..5).flat_map(|round| tags.iter().map(move |tag| (*tag, round))).collect();
        assert_eq!(kept, expected);
        assert!(!kept.is_empty());
    }
}
