//! A histogram of ns with the exact bucketing of HdrHistogram (1 ns to 1 h, 3 significant digits) as a flat array, so
//! that an increment is an index computation and one addition. At the end of a run or interval it is converted to a
//! real HdrHistogram and its base64 V2-deflate form. Quantiles are not computed here.

use base64::Engine as _;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

/// Longer values are clamped to 1 h.
pub const MAX_NS: u64 = 3_600_000_000_000;

const SIGNIFICANT_DIGITS: u8 = 3; // 0.1 %, far below the margin of verdicts; a fourth digit takes 16 times the memory
/// 2048 sub-buckets hold 3 digits (2 x 10^3, rounded up to a power of two).
const SUB_BUCKET_BITS: u32 = 11;
const HALF_BITS: u32 = SUB_BUCKET_BITS - 1;
const BUCKETS: usize = (64 - (MAX_NS >> SUB_BUCKET_BITS).leading_zeros()) as usize + 1;
const LENGTH: usize = (BUCKETS + 1) << HALF_BITS;

/// The non-empty buckets: (index, count).
pub type Sparse = Vec<(u32, u64)>;

#[derive(Clone, Default)]
pub struct Histogram {
    /// Empty until a value is recorded: an experiment may have thousands of steps with a quarter of a MB each.
    counts: Box<[u64]>,
}

impl Histogram {
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        let index = index(value_ns);
        match self.counts.get_mut(index) {
            Some(count) => *count += 1,
            None => self.room()[index] += 1,
        }
    }

    /// The counts, for which there is room from now on.
    #[cold]
    fn room(&mut self) -> &mut [u64] {
        if self.counts.is_empty() {
            self.counts = vec![0; LENGTH].into_boxed_slice();
        }
        &mut self.counts
    }

    pub fn add(&mut self, other: &Histogram) {
        if !other.counts.is_empty() {
            self.room().iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    pub fn add_sparse(&mut self, buckets: &Sparse) {
        if !buckets.is_empty() {
            let counts = self.room();
            buckets.iter().for_each(|&(index, count)| counts[index as usize] += count);
        }
    }

    /// Returns the non-empty buckets, and empties the histogram.
    pub fn take(&mut self) -> Sparse {
        let mut taken = Sparse::new();
        for (index, count) in self.counts.iter_mut().enumerate() {
            if *count != 0 {
                taken.push((index as u32, std::mem::take(count)));
            }
        }
        taken
    }

    pub fn to_hdr(&self) -> Hdr<u64> {
        let mut hdr =
            Hdr::new_with_bounds(1, MAX_NS, SIGNIFICANT_DIGITS).expect("the bounds are those HdrHistogram allows");
        for (index, &count) in self.counts.iter().enumerate() {
            if count != 0 {
                hdr.record_n(lowest(index), count).expect("a bucket's value lies within the bounds");
            }
        }
        hdr
    }

    /// The base64 V2-deflate form, as it is sent.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.to_hdr(), &mut bytes).expect("writing to memory cannot fail");
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }
}

/// Decodes a histogram from `Histogram::encode`.
pub fn decode(text: &str) -> Option<Hdr<u64>> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    hdrhistogram::serialization::Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// The bucket of a value: HdrHistogram's own formula for a unit magnitude of 0.
#[inline]
fn index(value_ns: u64) -> usize {
    let value = value_ns.clamp(1, MAX_NS);
    let bucket = 64 - SUB_BUCKET_BITS - (value | ((1 << SUB_BUCKET_BITS) - 1)).leading_zeros();
    ((bucket as usize) << HALF_BITS) + (value >> bucket) as usize
}

/// The smallest value of a bucket.
fn lowest(index: usize) -> u64 {
    let bucket = (index >> HALF_BITS).saturating_sub(1);
    ((index - (bucket << HALF_BITS)) as u64) << bucket
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    fn hdr_of(values: &[u64]) -> Hdr<u64> {
        let mut hdr = Hdr::new_with_bounds(1, MAX_NS, SIGNIFICANT_DIGITS).unwrap();
        values.iter().for_each(|&value| hdr.record(value.clamp(1, MAX_NS)).unwrap());
        hdr
    }

    /// Values of every magnitude, 0 and too long ones included.
    fn values() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0u32..44, any::<u64>()).prop_map(|(bits, raw)| raw & ((1 << bits) - 1)), 0..300)
    }

    proptest! {
        #[test]
        fn it_equals_an_hdr_histogram_that_recorded_the_same(values in values()) {
            prop_assert_eq!(of(&values).to_hdr(), hdr_of(&values));
        }

        #[test]
        fn merging_the_parts_gives_the_whole_in_any_order(values in values(), cut in 0usize..300) {
            let (a, b) = values.split_at(cut.min(values.len()));
            let mut ab = of(a);
            ab.add(&of(b));
            let mut ba = of(b);
            ba.add_sparse(&of(a).take());
            prop_assert_eq!(ab.to_hdr(), of(&values).to_hdr());
            prop_assert_eq!(ba.to_hdr(), of(&values).to_hdr());
        }

        #[test]
        fn the_wire_form_decodes_to_the_same(values in values()) {
            let histogram = of(&values);
            prop_assert_eq!(decode(&histogram.encode()).unwrap(), histogram.to_hdr());
        }

        #[test]
        fn quantiles_agree_with_a_sorted_oracle_to_three_digits(
            mut values in prop::collection::vec(1u64..MAX_NS, 1..300), quantile in 0.0f64..=1.0
        ) {
            let hdr = of(&values).to_hdr();
            values.sort_unstable();
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let (got, want) = (hdr.value_at_quantile(quantile) as f64, values[rank - 1] as f64);
            prop_assert!((got - want).abs() <= want * 1e-3 + 1.0, "{got} for {want}");
        }
    }

    #[test]
    fn taking_empties_it() {
        let mut histogram = of(&[5, 5, 7_000_000]);
        assert_eq!(histogram.take().iter().map(|&(_, count)| count).sum::<u64>(), 3);
        assert!(histogram.to_hdr().is_empty());
    }
}
