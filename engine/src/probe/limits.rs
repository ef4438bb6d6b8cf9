//! The room that limits leave a process tree: memory and tasks of its cgroups, the machine's tasks, and the CPU quota
//! of its cgroups. A process is bound by its own cgroups and by those above them.
//!
//! Sources: the kernel's Documentation/admin-guide/cgroup-v1/memory.rst and pids.rst, cgroup-v2.rst, sysctl/kernel.rst,
//! scheduler/sched-bwc.rst, and setrlimit(2).

use std::fs;
use std::path::{Path, PathBuf};

use super::procfs::number_after;

/// Larger limits mean that there is none: cgroup v1 then shows the largest multiple of a page.
const UNLIMITED: u64 = 1 << 60;

/// The files of one cgroup with a limit.
struct Bound {
    limit: u64,
    used: PathBuf,
    /// The file and key of the reclaimable page cache: v1 and v2 count the cache as used, although pages not read for
    /// long are given back first.
    cache: Option<(PathBuf, &'static [u8])>,
}

impl Bound {
    fn left(&self) -> Option<u64> {
        let cache = self.cache.as_ref().and_then(|(path, key)| number_after(&fs::read(path).ok()?, key));
        Some(self.limit.saturating_sub(number(&self.used)?.saturating_sub(cache.unwrap_or(0))))
    }
}

/// The CPU quota of a cgroup, in CPUs on average over each of its periods, and the file with its statistics.
struct Quota {
    cpus: f64,
    stat: PathBuf,
}

/// The enforcement of a CPU quota: the number of periods in which the cgroup ran, and of those in which it had used the
/// quota up and was stopped until the next period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttling {
    pub quota_cpus: f64,
    pub periods: u64,
    pub throttled: u64,
}

/// The limits of a process's cgroups at the time when they were read.
#[derive(Default)]
pub struct Limits {
    memory: Vec<Bound>,
    tasks: Vec<Bound>,
    /// The narrowest CPU quota; None if there is none.
    cpu: Option<Quota>,
    /// The limit on the machine's tasks, and the file with their current number.
    host_tasks: Option<u64>,
    load_average: PathBuf,
}

impl Limits {
    /// The limits of a process; None if it has gone.
    pub fn of(pid: i32) -> Option<Limits> {
        Limits::below(Path::new("/"), pid)
    }

    /// Like `of`, with /proc and /sys below the folder `machine`.
    fn below(machine: &Path, pid: i32) -> Option<Limits> {
        let groups = fs::read_to_string(machine.join(format!("proc/{pid}/cgroup"))).ok()?;
        let kernel = |name| number(&machine.join("proc/sys/kernel").join(name));
        let host_tasks = [kernel("threads-max"), kernel("pid_max")].into_iter().flatten().min();
        let load_average = machine.join("proc/loadavg");
        let mut limits = Limits { host_tasks, load_average, ..Limits::default() };
        let mounts = machine.join("sys/fs/cgroup");
        let mut quotas = Vec::new();
        // A line is `5:memory:/path` for a v1 hierarchy, `0::/path` for v2.
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                let unified = mounts.join("unified");
                let mount = if unified.is_dir() { &unified } else { &mounts };
                limits.memory.extend(bounds(mount, path, "memory.max", "memory.current", Some(b"\ninactive_file ")));
                limits.tasks.extend(bounds(mount, path, "pids.max", "pids.current", None));
                quotas.extend(cpu_quotas(mount, path, |folder| {
                    let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
                    let (quota, period) = text.trim().split_once(' ')?;
                    Some((quota.parse().ok()?, period.parse().ok()?))
                }));
            }
            for controller in controllers.split(',') {
                let mount = [controllers, controller].map(|name| mounts.join(name)).into_iter().find(|at| at.is_dir());
                let Some(mount) = mount else { continue };
                match controller {
                    "memory" => limits.memory.extend(bounds(
                        &mount,
                        path,
                        "memory.limit_in_bytes",
                        "memory.usage_in_bytes",
                        Some(b"\ntotal_inactive_file "),
                    )),
                    "pids" => limits.tasks.extend(bounds(&mount, path, "pids.max", "pids.current", None)),
                    "cpu" => quotas.extend(cpu_quotas(&mount, path, |folder| {
                        let in_us = |name| number(&folder.join(name));
                        Some((in_us("cpu.cfs_quota_us")?, in_us("cpu.cfs_period_us")?))
                    })),
                    _ => (),
                }
            }
        }
        limits.cpu = quotas.into_iter().min_by(|one, other| one.cpus.total_cmp(&other.cpus));
        Some(limits)
    }

    /// The enforcement of the CPU quota so far; None without a quota.
    pub fn throttling(&self) -> Option<Throttling> {
        let quota = self.cpu.as_ref()?;
        let stat = fs::read(&quota.stat).ok()?;
        let (periods, throttled) = (number_after(&stat, b"nr_periods ")?, number_after(&stat, b"nr_throttled ")?);
        Some(Throttling { quota_cpus: quota.cpus, periods, throttled })
    }

    /// Bytes that the tree's cgroups still allow; None if they have no limit.
    pub fn memory_left(&self) -> Option<u64> {
        self.memory.iter().filter_map(Bound::left).min()
    }

    /// Number of tasks that may still be started; None without a known limit. `by_users`: what the limits of the tree's
    /// users allow, if known.
    pub fn tasks_left(&self, by_users: Option<u64>) -> Option<u64> {
        let machine = self.host_tasks.zip(self.tasks_now()).map(|(most, now)| most.saturating_sub(now));
        self.tasks.iter().filter_map(Bound::left).chain(machine).chain(by_users).min()
    }

    /// The current number of tasks, from `0.20 0.18 0.12 1/80 11206`: averages, runnable/existing tasks, last pid.
    fn tasks_now(&self) -> Option<u64> {
        fs::read_to_string(&self.load_average).ok()?.split(['/', ' ']).nth(4)?.parse().ok()
    }
}

/// The folders of a cgroup and of those above it, as far as they are visible.
fn folders(mount: &Path, path: &str) -> Vec<PathBuf> {
    let own = mount.join(path.trim_start_matches('/'));
    // In a container, the path may be that outside of it, while only the container's part of the tree is mounted.
    let first = if own.is_dir() { own } else { mount.to_path_buf() };
    first.ancestors().take_while(|folder| folder.starts_with(mount)).map(Path::to_path_buf).collect()
}

/// The limits of a cgroup and of those above it.
fn bounds(mount: &Path, path: &str, limit: &str, used: &str, cache: Option<&'static [u8]>) -> Vec<Bound> {
    let of = |folder: PathBuf| {
        let limit = number(&folder.join(limit)).filter(|&limit| limit < UNLIMITED)?;
        let cache = cache.map(|key| (folder.join("memory.stat"), key));
        Some(Bound { limit, used: folder.join(used), cache })
    };
    folders(mount, path).into_iter().filter_map(of).collect()
}

/// The quotas of a cgroup and of those above it. `read`: reads the CPU time that a cgroup may use, and the period for
/// it.
fn cpu_quotas(mount: &Path, path: &str, read: impl Fn(&Path) -> Option<(u64, u64)>) -> Vec<Quota> {
    let of = |folder: PathBuf| {
        let (quota, period) = read(&folder).filter(|&(_, period)| period > 0)?;
        Some(Quota { cpus: quota as f64 / period as f64, stat: folder.join("cpu.stat") })
    };
    folders(mount, path).into_iter().filter_map(of).collect()
}

/// The number in a file; None if there is none (`max`).
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Planted(PathBuf);

    impl Planted {
        fn new(name: &str, files: &[(&str, &str)]) -> Planted {
            let root = std::env::temp_dir().join(format!("powerband-limits-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Planted(root)
        }
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_narrowest_cgroup_of_version_2_counts() {
        let files = [
            ("proc/7/cgroup", "0::/a/b\n"),
            ("proc/sys/kernel/threads-max", "9000\n"),
            ("proc/sys/kernel/pid_max", "200\n"),
            ("proc/loadavg", "0.25 0.18 0.12 3/190 11206\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "900\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 50\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/a/cpu.stat", "usage_usec 9\nnr_periods 20\nnr_throttled 11\nthrottled_usec 5\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/a/b/pids.max", "64\n"),
            ("sys/fs/cgroup/a/b/pids.current", "60\n"),
        ];
        let planted = Planted::new("v2", &files);
        let limits = Limits::below(&planted.0, 7).unwrap();
        assert_eq!((limits.memory_left(), limits.tasks_left(None)), (Some(150), Some(4)));
        assert_eq!(limits.tasks_left(Some(2)), Some(2));
        fs::write(planted.0.join("proc/loadavg"), "0.25 0.18 0.12 3/199 11206\n").unwrap();
        assert_eq!(limits.tasks_left(None), Some(1), "of all pids");
        assert_eq!(limits.throttling(), Some(Throttling { quota_cpus: 0.5, periods: 20, throttled: 11 }));
    }

    #[test]
    fn version_1_is_read_below_its_own_mounts() {
        let files = [
            ("proc/7/cgroup", "9:pids:/x\n4:memory:/y\n2:cpu,cpuacct:/\n0::/\n"),
            ("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/y/memory.usage_in_bytes", "1200\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 7\nnr_throttled 0\nthrottled_time 0\n"),
            ("sys/fs/cgroup/pids/pids.max", "10\n"), // a path outside of the container
            ("sys/fs/cgroup/pids/pids.current", "3\n"),
            ("sys/fs/cgroup/unified/cgroup.procs", ""),
        ];
        let planted = Planted::new("v1", &files);
        let limits = Limits::below(&planted.0, 7).unwrap();
        assert_eq!((limits.memory_left(), limits.tasks_left(None)), (Some(0), Some(7)));
        assert_eq!(limits.throttling(), Some(Throttling { quota_cpus: 1.5, periods: 7, throttled: 0 }));
    }

    #[test]
    fn without_limits_nothing_is_known() {
        let files = [
            ("proc/7/cgroup", "2:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/cgroup.procs", ""),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        let planted = Planted::new("none", &files);
        let limits = Limits::below(&planted.0, 7).unwrap();
        assert_eq!((limits.memory_left(), limits.tasks_left(None), limits.throttling()), (None, None, None));
        assert!(Limits::below(&planted.0, 8).is_none(), "it has gone");
    }

    #[test]
    fn this_machine_has_room_for_tasks() {
        assert!(Limits::of(std::process::id() as i32).unwrap().tasks_left(None).unwrap() > 0);
    }
}
