//! The thread that writes frames. One frame is on its way at most; the next one is drawn when it has arrived,
//! so a slow terminal sees fewer frames and never an old one, and memory does not grow.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::modes;

/// Whether a frame is on its way; of the process and not of a `Writer`, so that a panic in any thread can
/// wait for it.
static BUSY: Mutex<bool> = Mutex::new(false);
static FREE: Condvar = Condvar::new();

fn busy() -> MutexGuard<'static, bool> {
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's handle.
pub struct Writer {
    frames: SyncSender<Vec<u8>>,
}

impl Writer {
    /// Starts it. `done` is called after each frame, with the error if the terminal did not take it.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(done: impl Fn(io::Result<()>) + Send + 'static) -> io::Result<Self> {
        let (frames, queue) = mpsc::sync_channel::<Vec<u8>>(1);
        std::thread::Builder::new().name("frames".to_owned()).spawn(move || {
            for frame in queue {
                // Once the terminal is given back, what is left of its time is not written any more.
                let written = if modes::is_ours() { write_all(&frame) } else { Ok(()) };
                *busy() = false;
                FREE.notify_all();
                done(written);
            }
        })?;
        Ok(Self { frames })
    }

    /// Hands a frame over. The writer must be free.
    pub fn write(&self, frame: Vec<u8>) {
        *busy() = true;
        if self.frames.try_send(frame).is_err() {
            *busy() = false;
        }
    }
}

/// Whether the last frame has arrived.
pub fn is_free() -> bool {
    !*busy()
}

/// Waits until no frame is on its way, at most so long.
pub fn settle(patience: Duration) {
    let until = Instant::now() + patience;
    let mut busy = busy();
    while *busy {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        busy = FREE.wait_timeout(busy, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Writes to the terminal without the locks of the standard library, which a stuck thread may hold.
///
/// # Errors
/// If the terminal is gone.
pub fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    let stdout = rustix::stdio::stdout();
    while !bytes.is_empty() {
        match rustix::io::write(stdout, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Somebody who shares the terminal has made it non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
