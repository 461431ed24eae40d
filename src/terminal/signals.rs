//! Signals, on a thread of their own: none of them waits for the terminal.

use std::io;
use std::time::Duration;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;

use super::screen::leave;

/// How long the program may take to end by itself before it is ended.
const PATIENCE: Duration = Duration::from_millis(900);

/// What a signal means for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End, with this exit code.
    End(u8),
    /// The window has another size.
    Resize,
    /// It goes on after it was stopped.
    Continue,
}

/// Tells `sink` of signals from now on. If the program has not ended some time after it was told to – a
/// terminal that hangs can hold it in a write – it is ended here.
///
/// # Errors
/// If the signals cannot be taken.
pub fn watch(sink: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGWINCH => sink(Signal::Resize),
                SIGCONT => sink(Signal::Continue),
                signal => {
                    let code = u8::try_from(128 + signal).unwrap_or(1);
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

/// Stops the process as Ctrl-Z does in a shell; returns when it goes on.
pub fn suspend() {
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
}
