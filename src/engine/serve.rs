//! The child's main: a thread that reads requests, and the loop that owns llama.cpp.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use llama_cpp_2::llama_backend::LlamaBackend;

use super::load;
use super::native::URGENT;
use super::protocol::{ContextParams, EngineEvent, Problem, Request};
use super::step::Sink;

/// After so long without a request the cache is kept in files.
const REST: Duration = Duration::from_secs(1);

/// A request and when it arrived.
pub type Arrival = (Request, Instant);

/// Runs the engine over lines until its input ends: requests in, events out.
///
/// # Errors
/// If llama.cpp's backend cannot be started.
pub fn serve(input: impl BufRead + Send + 'static, output: impl Write + Send + 'static) -> Result<()> {
    let output = Mutex::new(output);
    let sink: Sink = Arc::new(move |event| {
        let Ok(mut line) = serde_json::to_vec(&event) else { return };
        line.push(b'\n');
        if let Ok(mut output) = output.lock() {
            // Nobody reads any more: the end of the input says so too, and ends the loop.
            let _ = output.write_all(&line).and_then(|()| output.flush());
        }
    });
    sink(EngineEvent::Hello { version: env!("CARGO_PKG_VERSION").to_owned() });
    let (sender, requests) = mpsc::channel();
    std::thread::Builder::new().name("requests".into()).spawn(move || read(input, &sender))?;
    run(&requests, &sink)
}

/// Reads requests until the input ends. What must not wait for a decode call ends it.
fn read(input: impl BufRead, requests: &mpsc::Sender<Arrival>) {
    let put = |request: Request| {
        if is_urgent(&request) {
            URGENT.fetch_add(1, Ordering::Relaxed);
        }
        requests.send((request, Instant::now())).is_ok()
    };
    for line in input.lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str::<Request>(&line) {
            Ok(request) => {
                if !put(request) {
                    return;
                }
            }
            Err(error) => tracing::warn!("not a request: {error}"),
        }
    }
    put(Request::Shutdown);
}

fn is_urgent(request: &Request) -> bool {
    matches!(request, Request::Cancel { .. } | Request::Load { .. } | Request::Shutdown)
}

/// How long the next request is waited for.
#[derive(Clone, Copy)]
enum Wait {
    /// Not at all.
    No,
    /// For a while, after which there is time for something else.
    Rest,
    /// Until there is one.
    Long,
}

/// Takes the next request.
fn receive(requests: &Receiver<Arrival>, wait: Wait) -> Result<Arrival, TryRecvError> {
    let arrival = match wait {
        Wait::No => requests.try_recv(),
        Wait::Rest => requests.recv_timeout(REST).map_err(|error| match error {
            RecvTimeoutError::Timeout => TryRecvError::Empty,
            RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
        }),
        Wait::Long => requests.recv().map_err(|_| TryRecvError::Disconnected),
    };
    if arrival.as_ref().is_ok_and(|(request, _)| is_urgent(request)) {
        // Requests of tests in the same process do not come through `read` and were not counted.
        let _ = URGENT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    }
    arrival
}

/// The loop: the same for the child and, in-process, for tests.
///
/// # Errors
/// If llama.cpp's backend cannot be started.
pub fn run(requests: &Receiver<Arrival>, sink: &Sink) -> Result<()> {
    let backend = backend()?;
    let mut next = receive(requests, Wait::Long).ok();
    while let Some((request, _)) = next.take() {
        next = match request {
            Request::Load { path, params } => one_model(&backend, &path, &params, requests, sink),
            Request::Generate { job, .. } | Request::Measure { job, .. } => {
                let problem = Problem::new("No model is loaded", "Choose one with /model");
                sink(EngineEvent::Failed { job, problem, size: None });
                receive(requests, Wait::Long).ok()
            }
            Request::Shutdown => None,
            _ => receive(requests, Wait::Long).ok(),
        };
    }
    Ok(())
}

fn backend() -> Result<LlamaBackend> {
    llama_cpp_2::send_logs_to_tracing(llama_cpp_2::LogOptions::default().with_logs_enabled(true));
    LlamaBackend::init().context("llama.cpp's backend cannot be started")
}

/// Loads a model and works with it until a request is about another one. Gives that request.
fn one_model(
    backend: &LlamaBackend,
    path: &Path,
    params: &ContextParams,
    requests: &Receiver<Arrival>,
    sink: &Sink,
) -> Option<Arrival> {
    let began = Instant::now();
    let loaded = load::model(backend, path, params, sink);
    let session = match &loaded {
        Ok(loaded) => load::session(backend, loaded, path, params, began, sink),
        Err(problem) => Err(problem.clone()),
    };
    let mut session = match session {
        Ok(session) => session,
        Err(problem) => {
            sink(EngineEvent::LoadFailed(problem));
            return receive(requests, Wait::Long).ok();
        }
    };
    loop {
        loop {
            let wait = match (session.is_idle(), session.wants_rest()) {
                (false, _) => Wait::No,
                (true, true) => Wait::Rest,
                (true, false) => Wait::Long,
            };
            match receive(requests, wait) {
                Ok((Request::Load { path, params }, at)) => {
                    session.close();
                    return Some((Request::Load { path, params }, at));
                }
                Ok((Request::Shutdown, _)) | Err(TryRecvError::Disconnected) => {
                    session.close();
                    return None;
                }
                Ok((request, at)) => session.request(request, at),
                Err(TryRecvError::Empty) if matches!(wait, Wait::Rest) => session.rest(),
                Err(TryRecvError::Empty) => break,
            }
        }
        session.step();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_taken_breaks_nothing_off_any_more() {
        let lines = "{\"request\":\"cancel\",\"job\":1}\n{\"request\":\"clear_cache\"}\nnonsense\n";
        let (sender, requests) = mpsc::channel();
        read(lines.as_bytes(), &sender);
        let mut waiting = Vec::new();
        while let Ok((request, _)) = receive(&requests, Wait::No) {
            waiting.push((URGENT.load(Ordering::Relaxed), request));
        }
        assert_eq!(
            waiting,
            [(1, Request::Cancel { job: 1 }), (1, Request::ClearCache), (0, Request::Shutdown)],
            "the end of the input is urgent and waits until it is taken"
        );
    }
}
