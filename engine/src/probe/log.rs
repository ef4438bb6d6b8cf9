//! Keeps the log of a launched command: its output goes through a pipe, which a thread empties into the file. The first
//! and the last MiB are kept; the bytes between them are dropped and counted. The reason for the pipe:
//! docs/decisions/0007.
//!
//! When the file has become long, and at the end, it is replaced by a shorter one. A reader finds at any time the first
//! MiB, the number of dropped bytes, and at least the last MiB. The first 64 MiB all pass through the file, so that no
//! reader who waits for a line of a starting server misses it. Later, only the last MiB of each 200 ms is written, so
//! that emptying the pipe costs little.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::sys;

/// Bytes kept at the beginning, and as many at the end.
const KEPT: usize = 1 << 20;
/// The file is replaced once it is longer than this.
const LONGEST: u64 = 17 << 20;
/// Up to this many bytes, everything passes through the file.
const WHOLE: u64 = 64 << 20;
const SAVE_EVERY: Duration = Duration::from_millis(200); // arbitrary: a reader who waits for a line sees it this late
/// The largest pipe for an unprivileged process (/proc/sys/fs/pipe-max-size); 60 MB/s fill it in 17 ms.
const PIPE_BYTES: libc::c_int = 1 << 20;
/// The pause between two readings of the pipe: a reader that waits for each line would cost the writer a wake-up per
/// line.
const PAUSE: Duration = Duration::from_millis(10);
/// After a reading of at least this many bytes, the next one follows sooner.
const MUCH: usize = PIPE_BYTES as usize / 8;
const SHORT_PAUSE: Duration = Duration::from_millis(2); // less than the 17 ms in which the pipe fills
/// The longest time for emptying the pipe at the end: a process beyond our reach may still hold it and print.
const REST_MAX: Duration = Duration::from_secs(1); // arbitrary: such a process may print for ever

/// The log of a running command.
pub struct Log(Arc<Mutex<Kept>>);

impl Log {
    /// Opens the log. Also returns the end of the pipe that the command gets as stdout and stderr. An existing file is
    /// continued.
    pub fn open(path: PathBuf) -> io::Result<(Log, PipeWriter)> {
        let (read, write) = io::pipe()?;
        let read = OwnedFd::from(read);
        sys::set_nonblocking(&read)?;
        // SAFETY: fcntl takes no pointers here. If it refuses, the pipe keeps its size.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        let mut file = File::options().create(true).append(true).read(true).open(&path)?;
        let length = file.metadata()?.len();
        let mut last = Vec::new();
        file.seek(SeekFrom::Start(length.saturating_sub(KEPT as u64)))?;
        (&file).take(KEPT as u64).read_to_end(&mut last)?;
        let kept = Kept {
            pipe: read,
            path,
            file: Some(file),
            length,
            printed: length,
            saved: length,
            saved_at: Instant::now(),
            last: last.into(),
            buffer: vec![0; 256 << 10],
        };
        Ok((Log(Arc::new(Mutex::new(kept))), write))
    }

    /// Starts to empty the pipe. Must not be called before the command was forked: until then, the probe has one
    /// thread.
    pub fn start(&self) -> io::Result<()> {
        let kept = Arc::clone(&self.0);
        std::thread::Builder::new().name("log".into()).spawn(move || keep(&kept)).map(drop)
    }

    /// Saves everything printed so far.
    pub fn save(&self) {
        let mut kept = lock(&self.0);
        kept.take_all();
        kept.save();
    }

    /// Saves everything printed, and keeps the first and the last MiB. Returns the numbers of bytes printed and
    /// dropped.
    pub fn finish(&self) -> (u64, u64) {
        let mut kept = lock(&self.0);
        kept.take_all();
        kept.save();
        if kept.between() > 0 {
            kept.replace();
        }
        (kept.printed, kept.between())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.finish();
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(|broken| broken.into_inner())
}

fn keep(shared: &Mutex<Kept>) {
    let pipe = lock(shared).pipe.as_raw_fd(); // belongs to `shared`, which keeps it open
    loop {
        let mut polled = [libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 }];
        let unsaved = lock(shared).unsaved() > 0;
        sys::poll(&mut polled, unsaved.then_some(SAVE_EVERY.as_nanos() as u64));
        let mut kept = lock(shared);
        let taken = kept.take();
        if kept.saved_at.elapsed() >= SAVE_EVERY {
            kept.save();
        }
        drop(kept);
        match taken {
            Taken::Bytes(count) if count >= MUCH => std::thread::sleep(SHORT_PAUSE),
            Taken::Bytes(_) => std::thread::sleep(PAUSE),
            Taken::Ended => return,
        }
    }
}

enum Taken {
    /// Number of bytes read; 0 if none were waiting.
    Bytes(usize),
    Ended,
}

struct Kept {
    pipe: OwnedFd,
    path: PathBuf,
    /// None after a failed write to the disk; the pipe is emptied all the same.
    file: Option<File>,
    /// Length of the file in bytes.
    length: u64,
    /// Number of bytes printed, then how many of them were saved or dropped.
    printed: u64,
    saved: u64,
    saved_at: Instant,
    last: VecDeque<u8>,
    buffer: Vec<u8>,
}

impl Kept {
    fn unsaved(&self) -> u64 {
        self.printed - self.saved
    }

    /// Number of bytes between the first and the last MiB.
    fn between(&self) -> u64 {
        self.printed.saturating_sub(2 * KEPT as u64)
    }

    /// Reads the content of the pipe, at most its size.
    fn take(&mut self) -> Taken {
        let mut count = 0;
        while count < PIPE_BYTES as usize {
            match sys::read(self.pipe.as_raw_fd(), &mut self.buffer) {
                Ok(0) if count == 0 => return Taken::Ended,
                Ok(0) => break,
                Ok(read) => {
                    self.add(read);
                    count += read;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        Taken::Bytes(count)
    }

    fn add(&mut self, read: usize) {
        self.printed += read as u64;
        self.last.extend(&self.buffer[..read]);
        let excess = self.last.len().saturating_sub(KEPT);
        self.last.drain(..excess);
        if self.printed <= WHOLE {
            self.save();
        }
    }

    /// Reads until the pipe is empty.
    fn take_all(&mut self) {
        let begun = Instant::now();
        while matches!(self.take(), Taken::Bytes(1..)) && begun.elapsed() < REST_MAX {}
    }

    fn save(&mut self) {
        let unsaved = self.unsaved();
        self.saved_at = Instant::now();
        if unsaved == 0 {
            return;
        }
        if unsaved > self.last.len() as u64 || self.length + unsaved > LONGEST {
            return self.replace();
        }
        let Some(file) = &mut self.file else { return self.saved = self.printed };
        let (front, back) = self.last.as_slices();
        let skip = self.last.len() - unsaved as usize;
        let written = file
            .write_all(front.get(skip..).unwrap_or_default())
            .and_then(|()| file.write_all(&back[skip.saturating_sub(front.len())..]));
        self.length += unsaved;
        self.saved = self.printed;
        self.check(written);
    }

    /// Replaces the file by one with the first and the last MiB.
    fn replace(&mut self) {
        self.saved = self.printed;
        if self.file.is_some() {
            let made = self.shorter();
            self.check(made);
        }
    }

    fn shorter(&mut self) -> io::Result<()> {
        let Some(old) = &mut self.file else { return Ok(()) };
        let temporary = self.path.with_extension("tmp");
        let mut new = File::options().create(true).truncate(true).write(true).read(true).open(&temporary)?;
        old.seek(SeekFrom::Start(0))?;
        let first = io::copy(&mut old.take(KEPT as u64), &mut new)?;
        let gone = self.printed.saturating_sub(first + self.last.len() as u64);
        write!(new, "\n[powerband let go of {gone} bytes here]\n")?;
        let (front, back) = self.last.as_slices();
        new.write_all(front)?;
        new.write_all(back)?;
        self.length = new.stream_position()?;
        std::fs::rename(&temporary, &self.path)?;
        *old = new;
        Ok(())
    }

    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            eprintln!("powerband-engine: {} cannot be written ({error}): it ends there", self.path.display());
            self.file = None;
        }
    }
}
