//! The one file with `unsafe`: what llama.cpp offers for a living context and the bindings do not wrap.
//!
//! `llama-cpp-2` keeps the context's address private. Its `Debug` output prints it, and that is where it is
//! taken from here: the crate's exact version is pinned, and [`Native::attach`] checks that what stands at
//! the address answers as the safe API does before anything is changed through it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::session::LlamaStateSeqFlags;
use llama_cpp_sys_2 as sys;

use super::sequences::SeqId;

/// How many requests wait that must not wait for a decode call or a load: while there are any, whatever runs
/// is broken off. Counted before a request is put into the queue and again when it is taken out, so that a
/// request never breaks off what itself has begun.
pub static URGENT: AtomicU32 = AtomicU32::new(0);

/// Graph nodes computed by the decode call that runs now: how far it is.
pub static NODES: AtomicU32 = AtomicU32::new(0);

/// The decode call that runs now is not broken off, because the state it changes could not be mended. It is short.
pub static PATIENT: AtomicBool = AtomicBool::new(false);

/// The address of a context, for the calls that the bindings lack.
#[derive(Debug)]
pub struct Native {
    context: NonNull<sys::llama_context>,
}

impl Native {
    /// Finds the context's address and makes its decode calls obey [`URGENT`] and [`PATIENT`] and count into [`NODES`].
    /// `None` where the address cannot be told; then threads stay fixed and a stop waits for the chunk.
    ///
    /// The value must not be used after the context is gone; the session that owns both sees to it.
    pub fn attach(context: &LlamaContext<'_>) -> Option<Self> {
        let shown = format!("{context:?}");
        let (_, rest) = shown.split_once("context: 0x")?;
        let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        let address = usize::from_str_radix(&digits, 16).ok()?;
        let pointer = std::ptr::with_exposed_provenance_mut::<sys::llama_context>(address);
        let native = Self { context: NonNull::new(pointer)? };
        // SAFETY: the address is the one that the bindings hold for a living context (pinned version, printed
        // by its Debug); these calls only read. Three values that agree make a wrong address implausible.
        let same = unsafe {
            sys::llama_n_ctx(pointer) == context.n_ctx()
                && sys::llama_n_batch(pointer) == context.n_batch()
                && sys::llama_n_ubatch(pointer) == context.n_ubatch()
        };
        if !same {
            return None;
        }
        // SAFETY: as above; `obey` is a plain function over statics and needs no data.
        unsafe { sys::llama_set_abort_callback(pointer, Some(obey), std::ptr::null_mut()) };
        Some(native)
    }

    /// Sets how many threads the next decode calls use.
    pub fn set_threads(&self, threads: u32) {
        let threads = i32::try_from(threads.clamp(1, 512)).unwrap_or(1);
        // SAFETY: the context lives (see `attach`) and no decode call runs: the step loop's thread owns both.
        unsafe { sys::llama_set_n_threads(self.context.as_ptr(), threads, threads) };
    }
}

/// The state of a sequence as llama.cpp writes it: positions, K, V. `None` if it cannot.
pub fn state(context: &LlamaContext<'_>, seq: SeqId) -> Option<Vec<u8>> {
    let (seq, flags) = (seq.cast_signed(), LlamaStateSeqFlags::empty());
    let size = context.state_seq_get_size_ext(seq, flags);
    let mut state = vec![0; size];
    // SAFETY: there is as much room as the call above says that will be written, and nothing changes in between.
    let written = unsafe { context.state_seq_get_data_ext(state.as_mut_ptr(), seq, flags) };
    (size > 0 && written == size).then_some(state)
}

/// Makes a sequence what a state says. False if llama.cpp does not take it, for want of room or because it is not of
/// this context; the sequence is empty then.
///
/// The bytes must come from [`state`], of a context of the same model and settings: those in files are held to that by
/// their sum and identity (`engine::states`).
pub fn set_state(context: &mut LlamaContext<'_>, seq: SeqId, state: &[u8]) -> bool {
    // SAFETY: llama.cpp reads no further than the length, checks layers, types and sizes, and answers 0 to what does
    // not fit.
    unsafe { context.state_seq_set_data_ext(state, seq.cast_signed(), LlamaStateSeqFlags::empty()) }
}

/// Called by llama.cpp once a graph node, on one of its compute threads.
unsafe extern "C" fn obey(_: *mut c_void) -> bool {
    NODES.fetch_add(1, Ordering::Relaxed);
    URGENT.load(Ordering::Relaxed) > 0 && !PATIENT.load(Ordering::Relaxed)
}
