//! Keeps the log of a launched command: what it prints goes through a pipe, which a thread empties into the file. The
//! first and the last MiB are kept; what lay between them is let go, and counted. Why a pipe: docs/decisions/0007.
//!
//! The file is replaced by a shorter one whenever it has become long, and at the end. Whoever reads it meanwhile finds
//! the first MiB, how many bytes were let go, and at least the last MiB. The first 64 MiB all pass through the file, so
//! that nobody who waits for a line of a starting server misses it; later no more is written than the last MiB of each
//! 200 ms, and the pipe is emptied at little cost.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::sys;

/// Kept at the beginning, and at the end.
const KEPT: usize = 1 << 20;
/// The file is replaced when it has become so long.
const LONGEST: u64 = 17 << 20;
/// Up to here, everything passes through the file.
const WHOLE: u64 = 64 << 20;
const SAVE_EVERY: Duration = Duration::from_millis(200); // arbitrary: who waits for a line sees it so late
/// The most that an unprivileged process may ask for (/proc/sys/fs/pipe-max-size); 17 ms of 60 MB/s.
const PIPE_BYTES: libc::c_int = 1 << 20;
/// Between two readings of the pipe: a reader that waits for each line would cost the writer a wake-up for each.
const PAUSE: Duration = Duration::from_millis(10);
/// After a reading that found this much, the next one comes sooner.
const MUCH: usize = PIPE_BYTES as usize / 8;
const SHORT_PAUSE: Duration = Duration::from_millis(2); // less than the 17 ms in which it fills
/// At the end, a process that is beyond our reach may still hold the pipe and print.
const REST_MAX: Duration = Duration::from_secs(1); // arbitrary: it may print for ever

/// A log that is being kept.
pub struct Log(Arc<Mutex<Kept>>);

impl Log {
    /// The log, and the end of the pipe that the command gets as stdout and stderr. An existing file goes on.
    pub fn open(path: PathBuf) -> io::Result<(Log, PipeWriter)> {
        let (read, write) = io::pipe()?;
        let read = OwnedFd::from(read);
        sys::set_nonblocking(&read)?;
        // SAFETY: fcntl takes no pointers here. Refused, the pipe keeps the size that it has.
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

    /// Begins to empty the pipe. Not before the command was forked: until then, the probe has one thread.
    pub fn start(&self) -> io::Result<()> {
        let kept = Arc::clone(&self.0);
        std::thread::Builder::new().name("log".into()).spawn(move || keep(&kept)).map(drop)
    }

    /// Saves all that was printed until now.
    pub fn save(&self) {
        let mut kept = lock(&self.0);
        kept.take_all();
        kept.save();
    }

    /// Saves all that was printed, and leaves the first and the last of it: bytes printed, bytes let go.
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
    let pipe = lock(shared).pipe.as_raw_fd(); // it stays open as long as this thread holds the rest
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
    /// 0: nothing is there now.
    Bytes(usize),
    Ended,
}

struct Kept {
    pipe: OwnedFd,
    path: PathBuf,
    /// None: the disk has refused; the pipe is emptied all the same.
    file: Option<File>,
    /// Length of the file in bytes.
    length: u64,
    /// Bytes printed, and how many of them were saved or let go.
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

    /// Bytes between the first and the last MiB.
    fn between(&self) -> u64 {
        self.printed.saturating_sub(2 * KEPT as u64)
    }

    /// Reads what is in the pipe, up to its size.
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

    /// Puts a file in place of this one that has the first and the last MiB.
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
