//! The thread that reads keys. It waits for the terminal itself, so that it can be stopped and sees a hang-up,
//! and asks crossterm only when there is something to read.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossterm::event::{Event as Read, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, poll};

use crate::app::Event;

/// From so many keys at once on they are no typing.
const BURST: usize = 32;
/// How long further keys of the same moment are waited for. With no time at all crossterm does not even look.
const MOMENT: Duration = Duration::from_micros(500);
/// The same within a burst; its parts arrive as the system hands them out.
const BURST_MOMENT: Duration = Duration::from_millis(5);
/// Most events that are gathered before they are handed on.
const GATHERED: usize = 1 << 16;
/// How long an input thread that is told to stop may take, where a sequence of keys has arrived in part.
const STOP: Duration = Duration::from_millis(200);

/// The input thread. Dropping it stops it, so that every further key is left to whoever has the terminal.
pub struct Input {
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Input {
    /// Starts reading. `sink` gets every event; [`Event::Terminate`] when the terminal is gone.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(sink: impl Fn(Event) + Send + 'static) -> io::Result<Self> {
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let thread = std::thread::Builder::new().name("input".to_owned()).spawn(move || {
            if read(&stopped, &sink).is_err() {
                sink(Event::Terminate);
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // The closed pipe wakes it.
        self.stop = None;
        let until = Instant::now() + STOP;
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Reads until told to stop.
///
/// # Errors
/// If the terminal is gone.
fn read(stopped: &OwnedFd, sink: &impl Fn(Event)) -> io::Result<()> {
    let stdin = rustix::stdio::stdin();
    let mut brackets = false;
    loop {
        let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut gathered = Vec::new();
        while there_is_more(if gathered.len() < BURST { MOMENT } else { BURST_MOMENT })? {
            gathered.push(crossterm::event::read()?);
            if gathered.len() == GATHERED {
                break;
            }
        }
        brackets |= gathered.iter().any(|e| matches!(e, Read::Paste(_)));
        events(gathered, brackets).into_iter().for_each(sink);
    }
}

/// Whether crossterm has another event. It may hold some that the system does not know of any more, and looks
/// for them only while there is time left: a thread that is interrupted asks again.
fn there_is_more(moment: Duration) -> io::Result<bool> {
    Ok(crossterm::event::poll(moment)? || crossterm::event::poll(moment)?)
}

/// Events as the app knows them. Where the terminal does not bracket what is pasted, many keys at once with a
/// line's end among them are a paste: lines of it must not be sent one by one.
fn events(gathered: Vec<Read>, brackets: bool) -> Vec<Event> {
    let mut events = Vec::new();
    let mut run: Vec<KeyEvent> = Vec::new();
    for event in gathered {
        match event {
            Read::Key(key) if key.kind != KeyEventKind::Release && typed(&key).is_some() => run.push(key),
            event => {
                end_run(&mut run, brackets, &mut events);
                match event {
                    Read::Key(key) if key.kind != KeyEventKind::Release => events.push(Event::Key(key)),
                    Read::Mouse(mouse) => events.push(Event::Mouse(mouse)),
                    Read::Paste(text) => events.push(Event::Paste(lines(&text))),
                    // The size comes with a signal, also while nothing is read here.
                    Read::Key(_) | Read::Resize(..) | Read::FocusGained | Read::FocusLost => {}
                }
            }
        }
    }
    end_run(&mut run, brackets, &mut events);
    events
}

fn end_run(run: &mut Vec<KeyEvent>, brackets: bool, events: &mut Vec<Event>) {
    let text: String = run.iter().filter_map(typed).collect();
    let keys = std::mem::take(run);
    if !brackets && keys.len() >= BURST && text.trim_end_matches(['\r', '\n']).contains(['\r', '\n']) {
        events.push(Event::Paste(lines(&text)));
    } else {
        events.extend(keys.into_iter().map(Event::Key));
    }
}

/// What a key writes, if it is one that pasted text can hold.
fn typed(key: &KeyEvent) -> Option<char> {
    let plain = !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    match key.code {
        KeyCode::Char(c) if plain => Some(c),
        KeyCode::Char('j') if key.modifiers == KeyModifiers::CONTROL => Some('\n'),
        KeyCode::Enter if key.modifiers.is_empty() => Some('\r'),
        KeyCode::Tab if key.modifiers.is_empty() => Some('\t'),
        _ => None,
    }
}

/// CR, LF and CRLF are one newline.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Read> {
        let code = |c| if c == '\r' { KeyCode::Enter } else { KeyCode::Char(c) };
        text.chars().map(|c| Read::Key(KeyEvent::new(code(c), KeyModifiers::NONE))).collect()
    }

    fn pastes(events: &[Event]) -> Vec<&str> {
        events.iter().filter_map(|e| if let Event::Paste(text) = e { Some(text.as_str()) } else { None }).collect()
    }

    #[test]
    fn line_ends_are_newlines() {
        assert_eq!(lines("a\r\nb\rc\nd\r\r\n"), "a\nb\nc\nd\n\n");
        let events = events(vec![Read::Paste("a\r\nb".to_owned())], true);
        assert_eq!(pastes(&events), ["a\nb"]);
    }

    #[test]
    fn many_keys_with_a_line_end_among_them_are_a_paste() {
        let long = format!("{}\rsecond line\r", "first line ".repeat(5));
        let expected = long.replace('\r', "\n");
        assert_eq!(pastes(&events(keys(&long), false)), [expected.as_str()]);
        // Where the terminal brackets pastes, keys are keys.
        assert_eq!(events(keys(&long), true).len(), long.len());
    }

    #[test]
    fn typing_stays_typing() {
        for text in ["hello\r", "yes\rno\r", "one long line that somebody types on a slow connection\r"] {
            let events = events(keys(text), false);
            assert_eq!(events.len(), text.len());
            assert!(events.iter().all(|e| matches!(e, Event::Key(_))), "{text}");
        }
    }

    #[test]
    fn releases_and_sizes_are_passed_over() {
        let release = KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::new(KeyCode::Char('a'), KeyModifiers::NONE) };
        assert!(events(vec![Read::Key(release), Read::Resize(1, 1), Read::FocusLost], false).is_empty());
    }
}
