//! Signals, on a thread of their own: none of them waits for the terminal.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Signal as Number, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::modes::leave;

/// How long the program may take to end by itself before it is ended.
const PATIENCE: Duration = Duration::from_millis(700);

/// What a signal means for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A key of a terminal that is not in raw mode asks to end, or somebody's `kill`; with the exit code.
    Interrupt(u8),
    /// Somebody asks to end, or the terminal is gone; with the exit code.
    End(u8),
    /// The window has another size.
    Resize,
    /// It goes on after it was stopped.
    Continue,
}

/// Tells `sink` of signals from now on. If the program is still there some time after [`Signal::End`], it is
/// ended here.
///
/// # Errors
/// If the signals cannot be taken.
pub fn watch(sink: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for number in signals.forever() {
            let code = u8::try_from(128 + number).unwrap_or(1);
            match number {
                SIGWINCH => sink(Signal::Resize),
                SIGCONT => sink(Signal::Continue),
                SIGINT | SIGQUIT => sink(Signal::Interrupt(code)),
                _ => {
                    sink(Signal::End(code));
                    std::thread::spawn(move || {
                        std::thread::sleep(PATIENCE);
                        leave();
                        std::process::exit(i32::from(code));
                    });
                }
            }
        }
    })?;
    Ok(())
}

/// A file that may not grow any more fails to be written, as one on a full disk does, and does not end the program.
pub fn outlive_file_limits() {
    let _ = signal_hook::flag::register(signal_hook::consts::signal::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Stops the process and all that were started with it, as Ctrl-Z does: a shell waits for the whole group. It
/// goes on, with [`Signal::Continue`], when the shell says so; where nobody could say so the system does not
/// stop it.
pub fn stop_group() {
    let _ = kill_current_process_group(Number::TSTP);
}
