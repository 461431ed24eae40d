//! The chat's hold on the engine's process: spawn it, ask it, hear it, outlive it.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::protocol::{EngineEvent, EngineNews, Request};

/// Lines of stderr that are kept for the moment when the engine dies.
const LAST_WORDS: usize = 12;
/// A line longer than this is no event of ours.
const LONGEST_LINE: u64 = 8 << 20;
/// How long an engine may take to end by itself when its input is closed.
const GRACE: Duration = Duration::from_millis(300);

/// A living engine. Dropping it ends the process.
pub struct Client {
    requests: Option<Sender<Request>>,
    child: Arc<Mutex<Child>>,
}

impl Client {
    /// Starts an engine; `command` is the program and its arguments. `sink` hears it from threads of its own,
    /// `Died` last.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn spawn(command: &[String], sink: impl Fn(EngineNews) + Send + Sync + 'static) -> io::Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "engine.command is empty"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Threads of OpenMP wait for each other spinning. With a busy neighbour that wastes whole time slices;
        // a short spin costs nothing when quiet and keeps a busy machine an order of magnitude faster.
        if std::env::var_os("GOMP_SPINCOUNT").is_none() && std::env::var_os("OMP_WAIT_POLICY").is_none() {
            command.env("GOMP_SPINCOUNT", "5000");
        }
        // Ctrl-C in a plain terminal goes to the whole foreground group; the chat decides what it means.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let child = Arc::new(Mutex::new(child));
        let (requests, queue) = mpsc::channel();
        let words = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stdin) = stdin {
            thread("engine requests", move || write(stdin, &queue))?;
        }
        let listener = stderr.map(|stderr| {
            let words = Arc::clone(&words);
            thread("engine stderr", move || listen(stderr, &words))
        });
        let living = Arc::clone(&child);
        thread("engine events", move || {
            if let Some(stdout) = stdout {
                hear(stdout, &sink);
            }
            let how = end(&living);
            // The last words are complete when stderr is closed, unless a grandchild keeps it open.
            if let Some(Ok(listener)) = listener {
                let until = Instant::now() + GRACE;
                while !listener.is_finished() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let last_words = lock(&words).drain(..).collect();
            sink(EngineNews::Died { how, last_words });
        })?;
        Ok(Self { requests: Some(requests), child })
    }

    /// Asks the engine; never waits for it. A dead engine hears nothing, and has told so.
    pub fn send(&self, request: &Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request.clone());
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        lock(&self.child).id()
    }
}

impl Client {
    /// Ends the engine, which may write into files for so long what it keeps of its cache.
    pub fn close(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        // Closing its input asks the engine to end; a decode call that runs is broken off by that.
        self.requests = None;
        let until = Instant::now() + grace;
        while Instant::now() < until {
            if matches!(lock(&self.child).try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end(GRACE);
    }
}

fn thread<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(mut stdin: ChildStdin, queue: &mpsc::Receiver<Request>) {
    for request in queue {
        let Ok(mut line) = serde_json::to_vec(&request) else { continue };
        line.push(b'\n');
        if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

fn hear(stdout: impl Read, sink: &impl Fn(EngineNews)) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    let mut garbage = false;
    loop {
        line.clear();
        match stdout.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match serde_json::from_slice::<EngineEvent>(&line) {
            Ok(event) => sink(EngineNews::Event(event)),
            Err(_) if garbage || line.trim_ascii().is_empty() => {}
            Err(_) => {
                garbage = true;
                let shown: String = String::from_utf8_lossy(&line).chars().take(200).collect();
                tracing::warn!("not an event: {shown}");
                sink(EngineNews::Garbage(shown.trim_end().to_owned()));
            }
        }
    }
}

fn listen(stderr: impl Read, words: &Mutex<VecDeque<String>>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stderr.by_ref().take(1 << 16).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if text.is_empty() {
            continue;
        }
        tracing::info!(target: "engine", "{text}");
        // A warning is no cause, and must not push one out.
        if ["WARN", "INFO"].iter().any(|level| text.trim_start().starts_with(level)) {
            continue;
        }
        let mut words = lock(words);
        words.push_back(text);
        if words.len() > LAST_WORDS {
            words.pop_front();
        }
    }
}

/// Waits for the process whose output has ended, and says how it ended.
fn end(child: &Mutex<Child>) -> String {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        let mut child = lock(child);
        match child.try_wait() {
            Ok(Some(status)) => return how(status),
            Ok(None) if Instant::now() < until => {}
            // Its output is closed and it does not end: of no use any more.
            _ => {
                let _ = child.kill();
                return child.wait().map_or_else(|e| format!("lost ({e})"), how);
            }
        }
        drop(child);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn how(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " (illegal instruction)",
            6 => " (abort)",
            7 | 10 => " (bus error)",
            8 => " (arithmetic error)",
            9 => " (killed, perhaps for lack of memory)",
            11 => " (segmentation fault)",
            15 => " (terminated)",
            _ => "",
        };
        return format!("ended by signal {signal}{name}");
    }
    match status.code() {
        Some(code) => format!("ended with exit status {code}"),
        None => "ended".to_owned(),
    }
}
