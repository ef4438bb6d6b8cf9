//! Sums the metrics of datagrams. In: their bytes. Out: every series' value since the start, the number of accepted
//! values and of refused lines. A known series costs a copy of its name, one hash and one addition.
//!
//! A sender cannot make it grow without bound: the numbers of series, of spellings of their names, and of values of
//! sets are limited.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use memchr::memrchr;

use super::names::{self, Kind};
use super::parse::{Line, Metric, Numbers, Value, lines, parse};

/// The limit on series. A timing counts as one series, though it has three values. Further series are refused.
pub const SERIES_MAX: usize = 10_000; // arbitrary: every event repeats each of them
/// The limit on name and tags of one series together, in bytes.
pub const NAME_MAX: usize = 2_048; // arbitrary: real ones have about a hundred
/// The limit on the names of all series together, in bytes; every event repeats them.
pub const NAMES_MAX: usize = 2 << 20;
/// The limit on distinct values of all sets together. Further values are refused.
pub const SET_VALUES_MAX: usize = 1_000_000; // arbitrary: it bounds the memory
/// Names and tags as sent, by which a series is found quickly; other spellings take the slow path.
const SPELLINGS_MAX: usize = 2 * SERIES_MAX;
/// The series that appears once the sets are full.
pub const SETS_FULL: &str = "statsd_sets_full";

#[derive(Default)]
pub struct Store {
    series: Vec<Series>,
    spellings: HashMap<Box<[u8]>, usize, BuildHasherDefault<Fold>>,
    /// Index of a series, by each of its names.
    names: HashMap<String, usize>,
    name_bytes: usize,
    /// Hashes the values of the sets to 64 bits: among a million values, the chance of a collision is 1 in 37 million.
    seen: RandomState,
    set_values: usize,
    /// Reused buffer for the spelling that is looked up.
    spelling: Vec<u8>,
    /// Values accepted; one line may contain several.
    pub updates: u64,
    /// Lines refused.
    pub malformed: u64,
}

struct Series {
    kind: Kind,
    names: Vec<String>,
    sum: Sum,
}

enum Sum {
    Counter(f64),
    Gauge(f64),
    Timing { count: f64, sum: f64, max: f64 },
    Set(HashSet<u64>),
}

impl Store {
    /// Adds a datagram. `whole`: false if it was truncated; its last line then counts as malformed, since a truncated
    /// number may still be a valid number.
    pub fn datagram(&mut self, bytes: &[u8], whole: bool) {
        let mut bytes = bytes;
        if !whole {
            bytes = &bytes[..memrchr(b'\n', bytes).unwrap_or(0)];
            self.malformed += 1;
        }
        for line in lines(bytes) {
            match parse(line) {
                Some(Line::Metric(metric)) => match self.add(&metric) {
                    Some(updates) => self.updates += updates,
                    None => self.malformed += 1,
                },
                Some(Line::Notice) => self.updates += 1,
                None => self.malformed += 1,
            }
        }
    }

    /// The values of all series by name. All are finite.
    pub fn values(&self) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        for series in &self.series {
            let of_series: &[f64] = match series.sum {
                Sum::Counter(value) | Sum::Gauge(value) => &[value],
                // No value has been accepted yet: there is no maximum.
                Sum::Timing { count: 0.0, .. } => &[],
                Sum::Timing { count, sum, max } => &[count, sum, max],
                Sum::Set(ref seen) => &[seen.len() as f64],
            };
            values.extend(series.names.iter().cloned().zip(of_series.iter().copied()));
        }
        if self.set_values == SET_VALUES_MAX {
            values.insert(SETS_FULL.into(), 1.0);
        }
        values
    }

    /// Adds the values of a line. Returns their number; None if the line was refused as a whole, which changes nothing.
    #[inline]
    fn add(&mut self, metric: &Metric) -> Option<u64> {
        let series = self.find(metric)?;
        match (&mut self.series[series].sum, metric.value) {
            (Sum::Counter(total), Value::Counter(numbers)) => add_to_counter(total, numbers, metric.rate),
            (Sum::Gauge(level), Value::Gauge(numbers)) => set_gauge(level, numbers),
            (Sum::Timing { count, sum, max }, Value::Timing(numbers)) => {
                add_to_timing(count, sum, max, numbers, metric.rate)
            }
            (Sum::Set(values), Value::Set(text)) => {
                let value = self.seen.hash_one(text);
                if !values.contains(&value) {
                    if self.set_values == SET_VALUES_MAX {
                        return None;
                    }
                    values.insert(value);
                    self.set_values += 1;
                }
                Some(1)
            }
            // `find` returns a series of the same kind.
            _ => None,
        }
    }

    /// The index of a metric's series, which is created if it is new. None if it cannot be created.
    #[inline]
    fn find(&mut self, metric: &Metric) -> Option<usize> {
        let kind = kind_of(metric.value);
        self.spelling.clear();
        self.spelling.push(kind as u8);
        self.spelling.extend_from_slice(metric.name);
        if !metric.tags.is_empty() {
            // No name contains a bar.
            self.spelling.push(b'|');
            self.spelling.extend_from_slice(metric.tags);
        }
        match self.spellings.get(&self.spelling[..]) {
            Some(known) => Some(*known),
            None => self.meet(kind, metric),
        }
    }

    #[cold]
    fn meet(&mut self, kind: Kind, metric: &Metric) -> Option<usize> {
        if metric.name.len() + metric.tags.len() > NAME_MAX {
            return None;
        }
        let names = names::series(kind, metric.name, metric.tags);
        let place = match names.first().and_then(|name| self.names.get(name)) {
            Some(known) => *known,
            None => self.begin(kind, names)?,
        };
        if self.series[place].kind != kind {
            return None;
        }
        if self.spellings.len() < SPELLINGS_MAX {
            self.spellings.insert(self.spelling.as_slice().into(), place);
        }
        Some(place)
    }

    fn begin(&mut self, kind: Kind, names: Vec<String>) -> Option<usize> {
        let bytes = self.name_bytes + names.iter().map(String::len).sum::<usize>();
        let full = self.series.len() == SERIES_MAX || bytes > NAMES_MAX;
        if full || names.iter().any(|name| self.names.contains_key(name)) {
            return None;
        }
        self.name_bytes = bytes;
        let place = self.series.len();
        self.names.extend(names.iter().map(|name| (name.clone(), place)));
        let sum = match kind {
            Kind::Counter => Sum::Counter(0.0),
            Kind::Gauge => Sum::Gauge(0.0),
            Kind::Timing => Sum::Timing { count: 0.0, sum: 0.0, max: f64::NEG_INFINITY },
            Kind::Set => Sum::Set(HashSet::new()),
        };
        self.series.push(Series { kind, names, sum });
        Some(place)
    }
}

fn kind_of(value: Value) -> Kind {
    match value {
        Value::Counter(_) => Kind::Counter,
        Value::Gauge(_) => Kind::Gauge,
        Value::Timing(_) => Kind::Timing,
        Value::Set(_) => Kind::Set,
    }
}

/// Refuses sums beyond the finite numbers, since JSON has no others.
#[inline]
fn add_to_counter(total: &mut f64, numbers: Numbers, rate: f64) -> Option<u64> {
    let (mut updates, mut next) = (0, *total);
    for number in numbers.iter() {
        updates += 1;
        next += number.value / rate;
    }
    *total = finite(next)?;
    Some(updates)
}

fn set_gauge(level: &mut f64, numbers: Numbers) -> Option<u64> {
    let (mut updates, mut next) = (0, *level);
    for number in numbers.iter() {
        updates += 1;
        next = if number.signed { next + number.value } else { number.value };
    }
    *level = finite(next)?;
    Some(updates)
}

/// Each value counts 1 / rate times, to stand for those that were not sent.
fn add_to_timing(count: &mut f64, sum: &mut f64, max: &mut f64, numbers: Numbers, rate: f64) -> Option<u64> {
    let (mut updates, mut next_sum, mut next_max) = (0, *sum, *max);
    for number in numbers.iter() {
        updates += 1;
        next_sum += number.value / rate;
        next_max = next_max.max(number.value);
    }
    let next_count = finite(*count + updates as f64 / rate)?;
    (*count, *sum, *max) = (next_count, finite(next_sum)?, next_max);
    Some(updates)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// Multiplies word by word and folds the product (like wyhash). The standard library's hash resists senders that choose
/// colliding names; the subject of an experiment is no such threat, and the table is bounded.
#[derive(Default)]
struct Fold(u64);

impl Fold {
    #[inline]
    fn mix(&mut self, word: u64) {
        // The golden ratio's fraction: odd, and without a pattern in its bits.
        let product = u128::from(self.0 ^ word ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Fold {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            // The length is hashed first, which distinguishes the padding from zeroes that were sent.
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_usize(&mut self, length: usize) {
        self.mix(length as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
