//! Parses the file with a JVM's own figures: PerfData 2 of HotSpot's `perfMemory.hpp`, a header, then entries of a
//! name, a type and a value. In: the bytes, which may be anything. Out: a `Jvm` event.

use std::collections::BTreeMap;

use crate::contract::events::{Collector, Jvm};

const HEADER: usize = 32;
const ENTRY: usize = 20;
/// Longer texts are cut; no collector has such a long name.
const TEXT_MAX: usize = 256;
const GENERATIONS: usize = 4; // HotSpot's collectors have two; a missing name costs one lookup
const SPACES: usize = 8; // of one generation; HotSpot's have up to three
const COLLECTORS: usize = 8; // HotSpot names up to three at a time
const OLD: &str = "sun.gc.generation.1";

/// The values of one file by name.
#[derive(Debug, Default, PartialEq)]
pub struct Page {
    numbers: BTreeMap<String, i64>,
    texts: BTreeMap<String, String>,
}

impl Page {
    /// Parses a file. The JVM writes to it at the same time: inconsistent data is an error, and the next reading may
    /// succeed.
    pub fn parse(data: &[u8]) -> Result<Page, &'static str> {
        if data.len() < HEADER || data[..4] != [0xca, 0xfe, 0xc0, 0xc0] {
            return Err("no hsperfdata file");
        }
        if data[4] != 1 {
            return Err("not little-endian");
        }
        if data[5] != 2 {
            return Err("not PerfData 2");
        }
        if data[7] == 0 {
            return Err("the JVM is still filling it");
        }
        let (mut at, count) = (number(data, 24)?, number(data, 28)?);
        let mut page = Page::default();
        for _ in 0..count {
            let length = number(data, at)?;
            let end = at.checked_add(length).filter(|&end| length >= ENTRY && end <= data.len());
            page.add(&data[at..end.ok_or("an entry reaches past the end")?])?;
            at += length;
        }
        Ok(page)
    }

    fn add(&mut self, entry: &[u8]) -> Result<(), &'static str> {
        let name = text(entry.get(number(entry, 4)?..).ok_or("a name lies outside of its entry")?);
        let value = entry.get(number(entry, 16)?..).ok_or("a value lies outside of its entry")?;
        match (entry[12], number(entry, 8)?) {
            (b'J', 0) => {
                let bytes = value.first_chunk().ok_or("a number is cut short")?;
                self.numbers.insert(name, i64::from_le_bytes(*bytes));
            }
            (b'B', length) if length > 0 => {
                self.texts.insert(name, text(&value[..value.len().min(length).min(TEXT_MAX)]));
            }
            _ => (),
        }
        Ok(())
    }

    pub fn jvm(&self, at_ns: u64, tree: &str, pid: i32) -> Jvm {
        let generations = || (0..GENERATIONS).map(|generation| format!("sun.gc.generation.{generation}"));
        let spaces = generations().flat_map(|name| (0..SPACES).map(move |space| format!("{name}.space.{space}.used")));
        Jvm {
            at_ns,
            tree: tree.into(),
            pid,
            heap_used_bytes_now: spaces.filter_map(|name| self.get(&name)).fold(0, u64::saturating_add),
            heap_committed_bytes_now: generations()
                .filter_map(|name| self.get(&format!("{name}.capacity")))
                .fold(0, u64::saturating_add),
            heap_left_bytes_now: self.old_left(),
            collectors: (0..COLLECTORS)
                .filter_map(|index| self.collector(&format!("sun.gc.collector.{index}")))
                .collect(),
            safepoint_ns: self.get("sun.rt.safepointTime").map(|ticks| self.ns(ticks)),
            compile_ns: self.get("java.ci.totalTime").map(|ticks| self.ns(ticks)),
            threads_live_now: self.get("java.threads.live").unwrap_or(0),
            threads_daemon_now: self.get("java.threads.daemon").unwrap_or(0),
            threads_peak: self.get("java.threads.livePeak").unwrap_or(0),
            threads_started: self.get("java.threads.started").unwrap_or(0),
        }
    }

    /// Room left in the old generation, where long-lived objects end up; with G1 and ZGC it is the whole heap.
    fn old_left(&self) -> Option<u64> {
        let most = self.get(&format!("{OLD}.maxCapacity")).filter(|&most| most > 0)?;
        let used = (0..SPACES).filter_map(|space| self.get(&format!("{OLD}.space.{space}.used")));
        Some(most.saturating_sub(used.fold(0, u64::saturating_add)))
    }

    fn collector(&self, name: &str) -> Option<Collector> {
        Some(Collector {
            name: self.texts.get(&format!("{name}.name")).cloned().unwrap_or_default(),
            count: self.get(&format!("{name}.invocations"))?,
            time_ns: self.ns(self.get(&format!("{name}.time"))?),
        })
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).map(|&value| value.max(0) as u64)
    }

    /// Converts ticks of the JVM's clock, which are ns unless the file has another frequency.
    fn ns(&self, ticks: u64) -> u64 {
        let per_s = self.get("sun.os.hrt.frequency").filter(|&frequency| frequency > 0).unwrap_or(1_000_000_000);
        (u128::from(ticks) * 1_000_000_000 / u128::from(per_s)) as u64
    }
}

/// The text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn number(data: &[u8], at: usize) -> Result<usize, &'static str> {
    let bytes = at.checked_add(4).and_then(|end| data.get(at..end)).ok_or("cut short")?;
    Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: u8, length: u32, value: &[u8]) -> Vec<u8> {
        let at = ENTRY + name.len() + 1;
        let value_at = at.next_multiple_of(8);
        let mut bytes = Vec::new();
        for field in [(value_at + value.len()) as u32, ENTRY as u32, length] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend([kind, 0, 1, 3]);
        bytes.extend((value_at as u32).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.resize(value_at, 0);
        bytes.extend(value);
        bytes
    }

    fn page(numbers: &[(&str, i64)], texts: &[(&str, &str)]) -> Vec<u8> {
        let mut data = vec![0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1];
        data.resize(24, 0);
        data.extend((HEADER as u32).to_le_bytes());
        data.extend(((numbers.len() + texts.len()) as u32).to_le_bytes());
        for (name, value) in numbers {
            data.extend(entry(name, b'J', 0, &value.to_le_bytes()));
        }
        for (name, value) in texts {
            let mut bytes = value.as_bytes().to_vec();
            bytes.push(0);
            data.extend(entry(name, b'B', bytes.len() as u32, &bytes));
        }
        data
    }

    #[test]
    fn figures_are_added_up_over_spaces_and_ticks_become_ns() {
        let data = page(
            &[
                ("sun.os.hrt.frequency", 1_000_000),
                ("sun.gc.generation.0.space.0.used", 5),
                ("sun.gc.generation.0.space.2.used", 7),
                ("sun.gc.generation.1.space.0.used", 100),
                ("sun.gc.generation.0.capacity", 50),
                ("sun.gc.generation.1.capacity", 150),
                ("sun.gc.generation.1.maxCapacity", 400),
                ("sun.gc.collector.0.invocations", 3),
                ("sun.gc.collector.0.time", 2_500),
                ("java.threads.live", 12),
                ("java.threads.started", 40),
            ],
            &[("sun.gc.collector.0.name", "G1 young")],
        );
        let jvm = Page::parse(&data).unwrap().jvm(9, "subject", 42);
        assert_eq!((jvm.heap_used_bytes_now, jvm.heap_committed_bytes_now), (112, 200));
        assert_eq!(jvm.heap_left_bytes_now, Some(300));
        assert_eq!(jvm.collectors, [Collector { name: "G1 young".into(), count: 3, time_ns: 2_500_000 }]);
        assert_eq!((jvm.threads_live_now, jvm.threads_started, jvm.safepoint_ns), (12, 40, None));
        assert_eq!((jvm.at_ns, jvm.pid), (9, 42));
    }

    #[test]
    fn another_format_and_an_unfinished_file_are_refused() {
        for (at, value) in [(0, 0), (4, 0), (5, 1), (7, 0)] {
            let mut data = page(&[("a", 1)], &[]);
            data[at] = value;
            assert!(Page::parse(&data).is_err());
        }
    }

    #[test]
    fn a_torn_file_is_refused_or_read_and_never_panics() {
        let whole = page(&[("java.threads.live", 1), ("b", -1)], &[("c", "text")]);
        for length in 0..whole.len() {
            let _ = Page::parse(&whole[..length]);
        }
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut data = whole.clone();
                data[at] = value;
                if let Ok(page) = Page::parse(&data) {
                    page.jvm(0, "", 0);
                }
            }
        }
    }
}
