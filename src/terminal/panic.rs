//! What happens when the program itself is at fault: the panic is noted and told to the loop, which ends the
//! chat in order. The hook writes nothing to the terminal and cannot panic.

use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::modes;

static FIRST: Mutex<Option<String>> = Mutex::new(None);
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Notes panics of every thread from now on. `tell` is called for each.
pub fn watch_panics(tell: impl Fn() + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(move |info| {
        // The second one may come out of cleaning up after the first, and end the process at once.
        if PANICKED.swap(true, Ordering::SeqCst) {
            modes::leave();
        }
        let text = describe(info);
        tracing::error!("panic: {text}\n{}", std::backtrace::Backtrace::capture());
        FIRST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        tell();
    }));
}

/// What the first panic said, and where it was.
pub fn last_panic() -> Option<String> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let what = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let place = info.location().map(|l| format!(" ({}:{})", l.file(), l.line())).unwrap_or_default();
    format!("{}{place}", what.unwrap_or("a panic without words"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_any_thread_is_noted_and_told() {
        let (sender, told) = std::sync::mpsc::channel();
        let sender = Mutex::new(sender);
        let before = std::panic::take_hook();
        watch_panics(move || drop(sender.lock().map(|s| s.send(()))));
        let thread = std::thread::spawn(|| panic!("the {} broke", "wheel"));
        assert!(thread.join().is_err());
        std::panic::set_hook(before);
        assert!(told.recv().is_ok());
        let text = last_panic().unwrap();
        assert!(text.starts_with("the wheel broke (") && text.contains("panic.rs:"), "{text}");
    }
}
