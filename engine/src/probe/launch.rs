//! Starts the subject: in its own session, in its cgroups, on its CPUs, with default signal handling and the descriptor
//! limit that the probe itself was started with. The subject dies with the probe. The child waits before its `exec`
//! until the parent has opened the perf counters on it, so that they miss nothing. If exec fails, the reason is returned
//! as a sentence.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::log::Log;
use super::perf::PerfCounters;
use crate::contract::spec::Launch;
use crate::sys::{cpu_set, descriptor_limits, limit_descriptors, run_on};

/// A started subject.
pub struct Launched {
    pub pid: i32,
    pub perf: PerfCounters,
    pub log: Log,
}

/// Settings that the probe was started with and has changed for itself: the subject gets the originals.
pub struct Inherited {
    /// Soft limit.
    pub descriptor_limit: u64,
    /// Empty if the probe has not bound itself.
    pub cpus: Vec<u32>,
}

/// Starts `launch`; the error is a sentence for the user.
pub fn launch(launch: &Launch, inherited: &Inherited, exact_counts: bool) -> Result<Launched, String> {
    let (log, output) = Log::open(PathBuf::from(&launch.log_file))
        .map_err(|e| format!("cannot open launch.log_file `{}`: {e}", launch.log_file))?;
    let prepared = Prepared::new(launch, inherited, output)?;
    let (go_read, go_write) = io::pipe().map_err(|e| format!("cannot make a pipe: {e}"))?;
    let (mut error_read, error_write) = io::pipe().map_err(|e| format!("cannot make a pipe: {e}"))?;
    // SAFETY: the probe has one thread; the child only makes system calls on what was prepared before the fork.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(format!("cannot fork: {}", io::Error::last_os_error())),
        // SAFETY: this is the freshly forked child.
        0 => unsafe { prepared.become_subject(go_read.as_raw_fd(), go_write.as_raw_fd(), error_write.as_raw_fd()) },
        _ => {}
    }
    let perf = if exact_counts { PerfCounters::open_for_exec(pid) } else { PerfCounters::default() };
    drop((go_read, error_write));
    drop(go_write); // closes the child's read end, which is its signal to go
    let mut failure = [0u8; 8];
    match error_read.read_exact(&mut failure) {
        Err(_) => {
            drop(prepared); // with our end of the log's pipe
            log.start().map_err(|e| format!("cannot start a thread: {e}"))?;
            Ok(Launched { pid, perf, log }) // closed by a successful exec
        }
        Ok(()) => {
            // SAFETY: reaping our own child, which is exiting.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            let stage = failure[0];
            let errno = i32::from_ne_bytes([failure[4], failure[5], failure[6], failure[7]]);
            Err(prepared.explain(stage, io::Error::from_raw_os_error(errno), launch))
        }
    }
}

const STAGE_AFFINITY: u8 = 1;
const STAGE_CWD: u8 = 2;
const STAGE_EXEC: u8 = 3;
const STAGE_CGROUP: u8 = 4;

/// Everything that the child needs, made before the fork: after it, only system calls are safe.
struct Prepared {
    program: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: Option<CString>,
    output: PipeWriter,
    null: File,
    cpus: Option<libc::cpu_set_t>,
    cgroups: Vec<File>,
    descriptor_limit: u64,
}

impl Prepared {
    fn new(launch: &Launch, inherited: &Inherited, output: PipeWriter) -> Result<Prepared, String> {
        let first = launch.argv.first().filter(|word| !word.is_empty());
        let first = first.ok_or("launch.argv is empty: give the program and its arguments")?;
        let null = File::open("/dev/null").map_err(|e| format!("cannot open /dev/null: {e}"))?;
        let program = find_program(first, launch)?;
        let c_string = |text: &str| {
            CString::new(text).map_err(|_| format!("launch: `{}` holds a NUL character", text.escape_debug()))
        };
        Ok(Prepared {
            program: CString::new(program.as_os_str().as_bytes()).map_err(|e| e.to_string())?,
            argv: launch.argv.iter().map(|arg| c_string(arg)).collect::<Result<_, _>>()?,
            env: environment(launch)?,
            cwd: launch.cwd.as_deref().map(c_string).transpose()?,
            output,
            null,
            cpus: cpu_set(if launch.cpus.is_empty() { &inherited.cpus } else { &launch.cpus })?,
            cgroups: launch.cgroups.iter().map(|folder| entry_of(folder)).collect::<Result<_, _>>()?,
            descriptor_limit: inherited.descriptor_limit,
        })
    }

    /// The child's side: never returns.
    ///
    /// # Safety
    /// Only to be called in a freshly forked child.
    unsafe fn become_subject(&self, go_read: i32, go_write: i32, error_write: i32) -> ! {
        let mut argv: Vec<*const libc::c_char> = self.argv.iter().map(|arg| arg.as_ptr()).collect();
        argv.push(std::ptr::null());
        let mut env: Vec<*const libc::c_char> = self.env.iter().map(|pair| pair.as_ptr()).collect();
        env.push(std::ptr::null());
        // SAFETY: system calls on valid arguments, in the child.
        unsafe {
            libc::setsid();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            reset_signals();
            libc::close(go_write);
            let mut byte = 0u8;
            // Ends when the parent closes its end, as a signal to go, or because it died (then the death signal
            // arrives).
            while libc::read(go_read, (&raw mut byte).cast(), 1) < 0 && errno() == libc::EINTR {}
            // `0` is the process that writes.
            for entry in &self.cgroups {
                if libc::write(entry.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                    fail(error_write, STAGE_CGROUP);
                }
            }
            if let Some(cpus) = &self.cpus
                && run_on(cpus).is_err()
            {
                fail(error_write, STAGE_AFFINITY);
            }
            let _ = limit_descriptors(self.descriptor_limit.min(descriptor_limits().1));
            if let Some(cwd) = &self.cwd
                && libc::chdir(cwd.as_ptr()) != 0
            {
                fail(error_write, STAGE_CWD);
            }
            libc::dup2(self.null.as_raw_fd(), 0);
            libc::dup2(self.output.as_raw_fd(), 1);
            libc::dup2(self.output.as_raw_fd(), 2);
            // The subject must not inherit descriptors that the probe holds without close-on-exec (since Linux 5.11).
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            libc::execve(self.program.as_ptr(), argv.as_ptr(), env.as_ptr());
            fail(error_write, STAGE_EXEC)
        }
    }

    fn explain(&self, stage: u8, error: io::Error, launch: &Launch) -> String {
        let program = self.program.to_string_lossy();
        match (stage, error.raw_os_error()) {
            (STAGE_AFFINITY, _) => {
                format!("cannot run on CPUs {:?} (launch.cpus): {error}; are they online and allowed?", launch.cpus)
            }
            (STAGE_CGROUP, _) => {
                format!("cannot enter the cgroups {:?} (launch.cgroups): {error}", launch.cgroups)
            }
            (STAGE_CWD, _) => {
                format!("cannot enter the folder `{}` (launch.cwd): {error}", launch.cwd.as_deref().unwrap_or(""))
            }
            // As in exec, the path is relative to the folder in which the subject is started.
            (_, Some(libc::ENOENT)) if Path::new(launch.cwd.as_deref().unwrap_or("")).join(&*program).exists() => {
                format!("cannot start `{program}`: the interpreter named in its first line was not found")
            }
            (_, Some(libc::ENOENT)) => format!("cannot start `{program}`: no such file"),
            (_, Some(libc::EACCES)) => {
                format!("cannot start `{program}`: it is not executable (a folder, or chmod +x is missing)")
            }
            (_, Some(libc::ENOEXEC)) => {
                format!("cannot start `{program}`: it is neither a program of this machine nor a script with a #! line")
            }
            _ => format!("cannot start `{program}`: {error}"),
        }
    }
}

/// The file by which a process enters a cgroup.
fn entry_of(folder: &str) -> Result<File, String> {
    let path = Path::new(folder).join("cgroup.procs");
    File::options()
        .write(true)
        .open(&path)
        .map_err(|e| format!("cannot open `{}` (launch.cgroups): {e}", path.display()))
}

/// Looks up a name without a slash on the PATH of the subject.
fn find_program(name: &str, launch: &Launch) -> Result<PathBuf, String> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let given = launch.env.iter().rev().find(|(key, _)| key == "PATH").map(|(_, value)| value.into());
    let path = given.or_else(|| std::env::var_os("PATH")).unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let candidates: Vec<PathBuf> = std::env::split_paths(&path).map(|dir| dir.join(name)).collect();
    let executable = |path: &&PathBuf| path.is_file() && is_executable(path);
    let found = candidates.iter().find(executable).or_else(|| candidates.iter().find(|path| path.is_file()));
    found.cloned().ok_or_else(|| {
        format!(
            "cannot start `{name}`: not found on the PATH ({}); check the spelling, or give its path",
            path.display()
        )
    })
}

fn is_executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a valid C string.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// The probe's own environment, with the launch's pairs added or replacing existing ones.
fn environment(launch: &Launch) -> Result<Vec<CString>, String> {
    let replaced = |key: &[u8]| launch.env.iter().any(|(name, _)| name.as_bytes() == key);
    let mut pairs = Vec::new();
    for (key, value) in std::env::vars_os().filter(|(key, _)| !replaced(key.as_bytes())) {
        pairs.push([key.as_bytes(), b"=", value.as_bytes()].concat());
    }
    for (i, (key, value)) in launch.env.iter().enumerate() {
        if key.is_empty() || key.contains('=') {
            return Err(format!("launch.env: `{key}` is no name of a variable"));
        }
        if !launch.env[i + 1..].iter().any(|(later, _)| later == key) {
            pairs.push([key.as_bytes(), b"=", value.as_bytes()].concat());
        }
    }
    pairs.into_iter().map(|pair| CString::new(pair).map_err(|_| "launch.env holds a NUL character".into())).collect()
}

/// The CPUs that the calling thread may run on, in rising order.
pub fn allowed_cpus() -> Vec<u32> {
    // SAFETY: an all-zero cpu_set_t is the empty set; the kernel writes no more than the given size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, std::mem::size_of_val(&set), &mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as u32).filter(|&cpu| libc::CPU_ISSET(cpu as usize, &set)).collect()
    }
}

/// Signals that the probe blocks or ignores must not be so in the subject.
///
/// # Safety
/// Only to be called in the child: it changes the handling of every signal.
unsafe fn reset_signals() {
    // SAFETY: SIGKILL, SIGSTOP and the C library's own signals refuse, which does no harm.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Reports the stage and errno through the pipe and ends the child.
///
/// # Safety
/// Only to be called in the child.
unsafe fn fail(pipe: i32, stage: u8) -> ! {
    let mut message = [0u8; 8];
    message[0] = stage;
    message[4..].copy_from_slice(&errno().to_ne_bytes());
    // SAFETY: a write of a local buffer; _exit runs no handler of the parent's.
    unsafe {
        libc::write(pipe, message.as_ptr().cast(), message.len());
        libc::_exit(127)
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
