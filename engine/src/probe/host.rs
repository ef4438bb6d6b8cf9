//! The host's counters: CPU, load, memory, pressure, accept-queue overflows.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::accept::AcceptQueues;
use super::process::tick_ns;
use super::procfs::{Numbers, ProcFile, after, number_after};
use crate::contract::events::HostSample;

/// How often the time of each CPU is told: on a large machine it is most of a sample.
const EACH_EVERY: Duration = Duration::from_secs(1);

pub struct Host {
    stat: Option<ProcFile>,
    load_average: Option<ProcFile>,
    memory: Option<ProcFile>,
    pressure: [Option<ProcFile>; 3],
    /// True if the kernel counts the time of interrupts apart from the tasks that they interrupt.
    interrupts_apart: bool,
    netstat: Option<ProcFile>,
    queues: AcceptQueues,
    /// By CPU number: true if its time is included.
    cpus: Vec<bool>,
    /// When each CPU's own time is due to be told again.
    each_at: Instant,
    /// /proc/stat has a number for every interrupt: tens of kB on a large machine.
    buffer: Vec<u8>,
}

impl Host {
    /// `cpus`: the CPUs whose time is summed.
    pub fn new(ports: &[u16], cpus: &[u32]) -> Host {
        let mut chosen = vec![false; cpus.iter().max().map_or(0, |&highest| highest as usize + 1)];
        cpus.iter().for_each(|&cpu| chosen[cpu as usize] = true);
        let open = |path: &str| ProcFile::open(path).ok();
        Host {
            stat: open("/proc/stat"),
            load_average: open("/proc/loadavg"),
            memory: open("/proc/meminfo"),
            pressure: ["cpu", "memory", "io"].map(|kind| open(&format!("/proc/pressure/{kind}"))),
            interrupts_apart: counts_interrupts_apart(Path::new("/")),
            netstat: open("/proc/self/net/netstat"),
            queues: AcceptQueues::new(ports),
            cpus: chosen,
            each_at: Instant::now(),
            buffer: vec![0; 256 * 1024],
        }
    }

    pub fn sample(&mut self) -> HostSample {
        let mut sample = HostSample::default();
        if let Some(text) = read(&self.stat, &mut self.buffer) {
            let interrupts_ns = read_stat(text, &self.cpus, &mut sample);
            let now = Instant::now();
            if now < self.each_at {
                sample.cpu_busy_ns_each.clear();
                sample.cpu_steal_ns_each.clear();
            } else {
                self.each_at = now + EACH_EVERY;
            }
            sample.cpu_interrupts_ns = self.interrupts_apart.then_some(interrupts_ns);
        }
        if let Some(text) = read(&self.load_average, &mut self.buffer) {
            read_load_average(text, &mut sample);
        }
        if let Some(text) = read(&self.memory, &mut self.buffer) {
            sample.memory_available_bytes_now = number_after(text, b"MemAvailable:").unwrap_or(0) * 1024;
        }
        let [cpu, memory, io] = [0, 1, 2].map(|i| read(&self.pressure[i], &mut self.buffer).and_then(some_total_ns));
        (sample.psi_cpu_some_ns, sample.psi_memory_some_ns, sample.psi_io_some_ns) = (cpu, memory, io);
        if let Some(text) = read(&self.netstat, &mut self.buffer) {
            sample.listen_overflows = column(text, b"ListenOverflows").unwrap_or(0);
            sample.listen_drops = column(text, b"ListenDrops").unwrap_or(0);
        }
        (sample.accept_queue_now, sample.accept_queue_limit) = self.queues.read();
        sample
    }
}

/// True if the kernel below this root says that it counts the time of interrupts apart: by its file with their
/// pressure, which it refuses to read if it does not (kernel/sched/psi.c; since Linux 6.1); if it has no such file, by
/// its configuration, which says that it was built to.
fn counts_interrupts_apart(root: &Path) -> bool {
    match fs::read(root.join("proc/pressure/irq")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read.is_ok(),
    }
    let Ok(release) = fs::read_to_string(root.join("proc/sys/kernel/osrelease")) else { return false };
    let release = release.trim();
    [format!("boot/config-{release}"), format!("lib/modules/{release}/config")]
        .iter()
        .filter_map(|path| fs::read_to_string(root.join(path)).ok())
        .any(|text| text.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

fn read<'b>(file: &Option<ProcFile>, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    file.as_ref()?.read(buffer).ok()
}

/// Parses `cpu3 user nice system idle iowait irq softirq steal ...` (user already includes guest time): a line for all
/// CPUs, then a line for each. The first line is used if the kernel does not list the requested CPUs. Returns the time
/// of interrupts, which is part of the busy time.
fn read_stat(text: &[u8], cpus: &[bool], sample: &mut HostSample) -> u64 {
    let (mut whole, mut ticks, mut found) = ([0u64; 8], [0u64; 8], false);
    let (mut busy_each, mut steal_each) = (Vec::new(), Vec::new());
    for line in text.split(|&b| b == b'\n').map_while(|line| line.strip_prefix(b"cpu")) {
        if line.starts_with(b" ") {
            add_to(&mut whole, Numbers(line));
            continue;
        }
        let mut numbers = Numbers(line);
        if numbers.next().is_some_and(|cpu| cpus.get(cpu as usize) == Some(&true)) {
            let mut own = [0u64; 8];
            add_to(&mut own, numbers);
            busy_each.push(busy_of(&own) * tick_ns());
            steal_each.push(own[STEAL] * tick_ns());
            ticks.iter_mut().zip(own).for_each(|(sum, each)| *sum += each);
            found = true;
        }
    }
    let all = if found { ticks } else { whole };
    let [_, _, _, idle, iowait, irq, softirq, steal] = all;
    sample.cpu_busy_ns = busy_of(&all) * tick_ns();
    sample.cpu_idle_ns = (idle + iowait) * tick_ns();
    sample.cpu_steal_ns = steal * tick_ns();
    (sample.cpu_busy_ns_each, sample.cpu_steal_ns_each) = (busy_each, steal_each);
    sample.context_switches = number_after(text, b"\nctxt ").unwrap_or(0);
    sample.forks = number_after(text, b"\nprocesses ").unwrap_or(0);
    (irq + softirq) * tick_ns()
}

const STEAL: usize = 7;

fn busy_of(ticks: &[u64; 8]) -> u64 {
    let [user, nice, system, _, _, irq, softirq, _] = ticks;
    user + nice + system + irq + softirq
}

fn add_to(ticks: &mut [u64; 8], values: Numbers) {
    for (slot, value) in ticks.iter_mut().zip(values) {
        *slot += value;
    }
}

/// `0.20 0.18 0.12 1/80 11206`: averages, runnable/existing, last pid.
fn read_load_average(text: &[u8], sample: &mut HostSample) {
    let mut words = text.split(|&b| b == b' ');
    let number = words.next().and_then(|word| std::str::from_utf8(word).ok()).and_then(|word| word.parse().ok());
    sample.load_average_1m = number.unwrap_or(0.0);
    sample.runnable_now = words.nth(2).and_then(|word| Numbers(word).next()).unwrap_or(0) as u32;
}

/// The `some` total of a pressure file, which the kernel gives in microseconds.
fn some_total_ns(text: &[u8]) -> Option<u64> {
    let line = text.strip_prefix(b"some ")?;
    Some(number_after(line, b"total=")? * 1000)
}

/// The value under a heading of the TcpExt table: a line of names, then a line of numbers.
fn column(text: &[u8], name: &[u8]) -> Option<u64> {
    let names = after(text, b"TcpExt:")?;
    let end = names.iter().position(|&b| b == b'\n')?;
    let index = names[..end].split(|&b| b == b' ').skip(1).position(|word| word == name)?;
    Numbers(after(&names[end..], b"TcpExt:")?).nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_netstat_are_found_by_name() {
        let text = b"TcpExt: A ListenOverflows ListenDrops\nTcpExt: 1 22 33\nIpExt: B\nIpExt: 4\n";
        assert_eq!(column(text, b"ListenOverflows"), Some(22));
        assert_eq!(column(text, b"ListenDrops"), Some(33));
        assert_eq!(column(text, b"B"), None);
    }

    #[test]
    fn pressure_and_load_are_parsed() {
        assert_eq!(some_total_ns(b"some avg10=0.00 avg60=0.12 avg300=1.00 total=77\nfull total=3\n"), Some(77_000));
        let mut sample = HostSample::default();
        read_load_average(b"0.25 0.18 0.12 3/80 11206\n", &mut sample);
        assert_eq!((sample.load_average_1m, sample.runnable_now), (0.25, 3));
    }

    #[test]
    fn only_the_time_of_the_cpus_asked_for_counts() {
        let text = b"cpu  60 0 0 600 0 0 0 6\ncpu0 10 1 2 100 4 5 6 1\ncpu1 20 0 0 200 0 0 0 2\n\
            cpu10 30 0 0 300 0 0 0 3\nintr 9 1 1\nctxt 77\nprocesses 5\n";
        let read = |cpus: &[bool]| {
            let mut sample = HostSample::default();
            let interrupts_ns = read_stat(text, cpus, &mut sample);
            [sample.cpu_busy_ns, sample.cpu_idle_ns, sample.cpu_steal_ns, interrupts_ns].map(|ns| ns / tick_ns())
        };
        assert_eq!(read(&[true]), [24, 104, 1, 11]);
        assert_eq!(read(&[true, true, false]), [44, 304, 3, 11]);
        assert_eq!(read(&[false, false, true]), [60, 600, 6, 0], "CPU 2 is not listed");
        let mut sample = HostSample::default();
        read_stat(text, &[true, true], &mut sample);
        assert_eq!(sample.cpu_busy_ns_each, [24, 20].map(|ticks| ticks * tick_ns()));
        assert_eq!(sample.cpu_steal_ns_each, [1, 2].map(|ticks| ticks * tick_ns()));
    }

    #[test]
    fn a_kernel_says_in_two_ways_that_it_counts_interrupts_apart() {
        let of = |name: &str, files: &[(&str, &str)]| {
            let root = std::env::temp_dir().join(format!("powerband-host-{name}-{}", std::process::id()));
            for (path, text) in files.iter().chain(&[("proc/sys/kernel/osrelease", "5.4.17-ol8\n")]) {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let apart = counts_interrupts_apart(&root);
            fs::remove_dir_all(&root).unwrap();
            apart
        };
        let built = ("boot/config-5.4.17-ol8", "CONFIG_A=m\nCONFIG_IRQ_TIME_ACCOUNTING=y\n");
        assert!(of("file", &[("proc/pressure/irq", "full total=0\n")]));
        assert!(of("built", &[built]));
        assert!(!of("not", &[("boot/config-5.4.17-ol8", "# CONFIG_IRQ_TIME_ACCOUNTING is not set\n")]));
        assert!(!of("other", &[("boot/config-6.0", "CONFIG_IRQ_TIME_ACCOUNTING=y\n")]), "of another kernel");
        assert!(!of("none", &[]));
        assert!(!of("refused", &[("proc/pressure/irq/x", ""), built]), "the file cannot be read");
    }

    #[test]
    fn this_host_has_used_cpu_and_memory() {
        let sample = Host::new(&[], &[0]).sample();
        assert!(sample.cpu_busy_ns > 0 && sample.cpu_idle_ns > 0 && sample.context_switches > 0 && sample.forks > 0);
        assert!(sample.memory_available_bytes_now > 0 && sample.runnable_now >= 1);
    }
}
