//! Reads /proc cheaply: files stay open and are read repeatedly with `pread` into one buffer; parsers of their text
//! allocate nothing. The callers interpret the numbers.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::sys::checked;

/// The longest status file of a process or thread: it lists the groups of its user, who may be in a thousand.
pub const STATUS_MAX: usize = 16 << 10;

/// A /proc file kept open. The kernel makes its text anew on each read from offset 0.
#[derive(Debug)]
pub struct ProcFile(File);

impl ProcFile {
    pub fn open(path: &str) -> io::Result<ProcFile> {
        File::open(path).map(ProcFile)
    }

    /// Opens a file by a path relative to a folder, which is cheaper than resolving the full path.
    pub fn open_in(dir: &ProcDir, path: &str) -> io::Result<ProcFile> {
        let path = CString::new(path)?;
        // SAFETY: the path is a valid C string; the descriptor returned is ours alone.
        unsafe {
            let fd = checked(libc::openat(dir.0.as_raw_fd(), path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC))?;
            Ok(ProcFile(File::from_raw_fd(fd)))
        }
    }

    /// The file's text, as much as fits into `buffer`. An error means that the process or thread has gone.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let n = self.0.read_at(buffer, 0)?;
        Ok(&buffer[..n])
    }
}

/// A /proc folder kept open, whose numeric entries (pids, tids, descriptors) can be listed again and again.
#[derive(Debug)]
pub struct ProcDir(File);

impl ProcDir {
    pub fn open(path: &str) -> io::Result<ProcDir> {
        File::open(path).map(ProcDir)
    }

    /// Replaces `ids` by the numeric entries, in the kernel's order (ascending). Empty when the process has gone.
    pub fn list(&self, ids: &mut Vec<i32>) {
        ids.clear();
        let mut buffer = [0u64; 4096];
        // SAFETY: seeking and reading directory entries of our own descriptor into a buffer of the given length.
        unsafe {
            libc::lseek(self.0.as_raw_fd(), 0, libc::SEEK_SET);
            loop {
                let size = std::mem::size_of_val(&buffer);
                let n = libc::syscall(libc::SYS_getdents64, self.0.as_raw_fd(), buffer.as_mut_ptr(), size);
                if n <= 0 {
                    return;
                }
                let bytes = std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), n as usize);
                collect_ids(bytes, ids);
            }
        }
    }

    /// True if entry `id` of /proc/PID/fd is a socket.
    pub fn is_socket(&self, id: i32) -> bool {
        let mut name = [0u8; 16]; // the number's digits, and NUL for the rest
        let _ = write!(&mut name[..], "{id}");
        let mut target = [0u8; 8];
        // SAFETY: `name` is NUL-terminated and `target` is valid for writes of its length.
        let n = unsafe {
            libc::readlinkat(self.0.as_raw_fd(), name.as_ptr().cast(), target.as_mut_ptr().cast(), target.len())
        };
        n > 0 && target[..n as usize].starts_with(b"socket:")
    }

    /// The folder's size: for /proc/PID/fd the number of open descriptors (since Linux 6.2; 0 before).
    pub fn size(&self) -> u64 {
        self.0.metadata().map_or(0, |folder| folder.size())
    }

    /// Number of subfolders, from the link count: for /proc/PID/task the number of threads. 0 when the process has
    /// gone.
    pub fn subfolders(&self) -> u32 {
        self.0.metadata().map_or(0, |folder| folder.nlink().saturating_sub(2) as u32)
    }
}

/// The numeric names among the `linux_dirent64` records in `bytes` (name at offset 19, record length at 16).
fn collect_ids(bytes: &[u8], ids: &mut Vec<i32>) {
    let mut rest = bytes;
    while rest.len() > 19 {
        let length = u16::from_ne_bytes([rest[16], rest[17]]) as usize;
        let name = rest[19..length].split(|&byte| byte == 0).next().unwrap_or_default();
        ids.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse::<i32>().ok()));
        rest = &rest[length..];
    }
}

/// Pid and stat of every process of the host.
pub fn processes() -> Vec<(i32, Stat)> {
    let mut pids = Vec::new();
    if let Ok(proc) = ProcDir::open("/proc") {
        proc.list(&mut pids);
    }
    pids.into_iter().filter_map(|pid| Some((pid, stat_of(pid)?))).collect()
}

/// Reads a process's stat. None if the process has gone.
pub fn stat_of(pid: i32) -> Option<Stat> {
    let mut buffer = [0u8; 1024];
    parse_stat(ProcFile::open(&format!("/proc/{pid}/stat")).ok()?.read(&mut buffer).ok()?)
}

/// The fields of /proc/PID/stat (and of /proc/PID/task/TID/stat) in use. Times in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stat {
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub minor_faults: u64,
    pub child_minor_faults: u64,
    pub major_faults: u64,
    pub child_major_faults: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub child_user_ticks: u64,
    pub child_system_ticks: u64,
    pub threads: u32,
    pub start_ticks: u64,
    pub rss_pages: u64,
}

impl Stat {
    /// True if the main thread has ended. Others may continue without it: it stays a zombie until the last of them
    /// ends.
    pub fn main_thread_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// True if the whole process has ended and only waits to be reaped.
    pub fn is_dead(&self) -> bool {
        self.main_thread_ended() && self.threads <= 1
    }
}

/// Parses a stat line; the name in it may contain any characters, so the fields are counted from the last `)`.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|&b| b == b')')? + 2;
    let mut fields = Numbers(text.get(after_name + 1..)?);
    let mut value = [0u64; 22];
    for slot in &mut value {
        *slot = fields.next()?;
    }
    // value[0] is field 4 of proc(5): the parent.
    Some(Stat {
        state: text[after_name],
        parent: value[0] as i32,
        group: value[1] as i32,
        minor_faults: value[6],
        child_minor_faults: value[7],
        major_faults: value[8],
        child_major_faults: value[9],
        user_ticks: value[10],
        system_ticks: value[11],
        child_user_ticks: value[12],
        child_system_ticks: value[13],
        threads: value[16] as u32,
        start_ticks: value[18],
        rss_pages: value[20],
    })
}

/// The fields of /proc/PID/task/TID/status in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status<'t> {
    pub name: &'t [u8],
    pub state: u8,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

pub fn parse_status(text: &[u8]) -> Option<Status<'_>> {
    let line_end = text.iter().position(|&b| b == b'\n')?;
    let name = text[..line_end].strip_prefix(b"Name:\t")?;
    let state = *after(&text[line_end..], b"\nState:\t")?.first()?;
    // The two counters are near the end of the text, so only the end is searched.
    let tail = text.len().saturating_sub(200);
    let voluntary = after(&text[tail..], b"\nvoluntary_ctxt_switches:\t")?;
    let involuntary = after(voluntary, b"\nnonvoluntary_ctxt_switches:\t")?;
    Some(Status {
        name,
        state,
        voluntary_switches: Numbers(voluntary).next()?,
        involuntary_switches: Numbers(involuntary).next()?,
    })
}

/// The fields of /proc/PID/statm in use, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statm {
    pub resident: u64,
    /// Those of the resident pages that are neither of files nor of shared memory.
    pub anonymous: u64,
}

pub fn parse_statm(text: &[u8]) -> Option<Statm> {
    let mut fields = Numbers(text);
    let (resident, shared) = (fields.nth(1)?, fields.next()?);
    Some(Statm { resident, anonymous: resident.saturating_sub(shared) })
}

/// Parses /proc/PID/task/TID/schedstat: on-CPU ns, run-queue wait ns, and number of times put on a CPU.
pub fn parse_schedstat(text: &[u8]) -> Option<(u64, u64, u64)> {
    let mut fields = Numbers(text);
    Some((fields.next()?, fields.next()?, fields.next()?))
}

/// The number that follows `key`.
pub fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    Numbers(after(text, key)?).next()
}

/// The text after the first occurrence of `key`.
pub fn after<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    let at = text.windows(key.len()).position(|window| window == key)?;
    Some(&text[at + key.len()..])
}

/// The whole numbers of a text line, in order; any character other than a digit is a separator, including a minus sign.
pub struct Numbers<'t>(pub &'t [u8]);

impl Iterator for Numbers<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let start = self.0.iter().position(u8::is_ascii_digit)?;
        let digits = &self.0[start..];
        let length = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
        let value = digits[..length].iter().fold(0u64, |v, b| v.wrapping_mul(10).wrapping_add((b - b'0') as u64));
        self.0 = &digits[length..];
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_past_any_name() {
        let line =
            b"42 (a) R (b) S 7 42 42 0 -1 4194560 11 12 13 14 15 16 17 18 20 0 5 0 999 1000 77 18446744073709551615 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.group, stat.threads), (b'S', 7, 42, 5));
        assert_eq!((stat.minor_faults, stat.child_major_faults), (11, 14));
        assert_eq!((stat.user_ticks, stat.child_system_ticks), (15, 18));
        assert_eq!((stat.start_ticks, stat.rss_pages), (999, 77));
        assert_eq!(parse_stat(&line[..20]), None);
    }

    #[test]
    fn a_process_is_dead_when_no_thread_is_left() {
        let stat = |state, threads| Stat { state, threads, ..Stat::default() };
        assert!(stat(b'Z', 1).is_dead() && stat(b'X', 0).is_dead());
        assert!(!stat(b'Z', 3).is_dead() && stat(b'Z', 3).main_thread_ended());
        assert!(!stat(b'S', 1).is_dead() && !stat(b'S', 1).main_thread_ended());
    }

    #[test]
    fn a_status_text_gives_name_state_and_switches() {
        let text = b"Name:\tpool-1\nUmask:\t0022\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let status = parse_status(text).unwrap();
        assert_eq!((status.name, status.state), (&b"pool-1"[..], b'S'));
        assert_eq!((status.voluntary_switches, status.involuntary_switches), (12, 3));
    }

    #[test]
    fn pages_of_files_and_of_shared_memory_are_not_anonymous() {
        let told = parse_statm(b"765 434 406 5 0 123 0\n");
        assert_eq!(told, Some(Statm { resident: 434, anonymous: 28 }));
        let all = parse_statm(b"765 434 0 0 0 0 0\n");
        assert_eq!(all, Some(Statm { resident: 434, anonymous: 434 }), "a kernel that does not tell them apart");
        assert_eq!(parse_statm(b""), None);
    }

    #[test]
    fn own_files_parse() {
        let mut buffer = [0u8; 4096];
        let pid = std::process::id() as i32;
        let stat = parse_stat(ProcFile::open("/proc/self/stat").unwrap().read(&mut buffer).unwrap()).unwrap();
        assert!(stat.threads >= 1 && stat.rss_pages > 0);
        let mut ids = Vec::new();
        ProcDir::open("/proc").unwrap().list(&mut ids);
        assert!(ids.contains(&pid) && ids.contains(&stat.parent));
    }

    #[test]
    fn sockets_are_told_from_files() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let dir = ProcDir::open("/proc/self/fd").unwrap();
        assert!(dir.is_socket(socket.as_raw_fd()));
        assert!(!dir.is_socket(dir.0.as_raw_fd()));
    }
}
