//! The child's main: a thread that reads requests, and the loop that owns llama.cpp.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result};
use llama_cpp_2::llama_backend::LlamaBackend;

use super::load;
use super::native::ABORT;
use super::protocol::{ContextParams, EngineEvent, Problem, Request};
use super::step::Sink;

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
    for line in input.lines() {
        let Ok(line) = line else { break };
        match serde_json::from_str::<Request>(&line) {
            Ok(request) => {
                let urgent = matches!(request, Request::Cancel { .. } | Request::Load { .. } | Request::Shutdown);
                if requests.send((request, Instant::now())).is_err() {
                    return;
                }
                // After it is in the queue, so that the loop finds it when it asks why it was stopped.
                if urgent {
                    ABORT.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => tracing::warn!("not a request: {error}"),
        }
    }
    let _ = requests.send((Request::Shutdown, Instant::now()));
    ABORT.store(true, Ordering::Relaxed);
}

/// The loop: the same for the child and, in-process, for tests.
///
/// # Errors
/// If llama.cpp's backend cannot be started.
pub fn run(requests: &Receiver<Arrival>, sink: &Sink) -> Result<()> {
    let backend = backend()?;
    let mut next = requests.recv().ok();
    while let Some((request, _)) = next.take() {
        next = match request {
            Request::Load { path, params } => one_model(&backend, &path, &params, requests, sink),
            Request::Generate { job, .. } => {
                let problem = Problem::new("No model is loaded", "Choose one with /model");
                sink(EngineEvent::Failed { job, problem });
                requests.recv().ok()
            }
            Request::Shutdown => None,
            _ => requests.recv().ok(),
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
    ABORT.store(false, Ordering::Relaxed);
    let loaded = load::model(backend, path, params, sink);
    let session = match &loaded {
        Ok(loaded) => load::session(backend, loaded, path, params, began, sink),
        Err(problem) => Err(problem.clone()),
    };
    let mut session = match session {
        Ok(session) => session,
        Err(problem) => {
            sink(EngineEvent::LoadFailed(problem));
            return requests.recv().ok();
        }
    };
    loop {
        // Cleared before looking: a request that sets it from here on is either seen now or stops the step.
        ABORT.store(false, Ordering::Relaxed);
        loop {
            let arrival = if session.is_idle() {
                requests.recv().map_err(|_| TryRecvError::Disconnected)
            } else {
                requests.try_recv()
            };
            match arrival {
                Ok((Request::Load { path, params }, at)) => {
                    session.stop_all();
                    return Some((Request::Load { path, params }, at));
                }
                Ok((Request::Shutdown, _)) | Err(TryRecvError::Disconnected) => {
                    session.stop_all();
                    return None;
                }
                Ok((request, at)) => session.request(request, at),
                Err(TryRecvError::Empty) => break,
            }
        }
        session.step();
    }
}
