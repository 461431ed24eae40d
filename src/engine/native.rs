//! The one file with `unsafe`: what llama.cpp offers for a living context and the bindings do not wrap.
//!
//! `llama-cpp-2` keeps the context's address private. Its `Debug` output prints it, and that is where it is
//! taken from here: the crate's exact version is pinned, and [`Native::attach`] checks that what stands at
//! the address answers as the safe API does before anything is changed through it.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use llama_cpp_2::context::LlamaContext;
use llama_cpp_sys_2 as sys;

/// How many requests wait that must not wait for a decode call or a load: while there are any, whatever runs
/// is broken off. Counted before a request is put into the queue and again when it is taken out, so that a
/// request never breaks off what itself has begun.
pub static URGENT: AtomicU32 = AtomicU32::new(0);

/// Graph nodes computed by the decode call that runs now: how far it is.
pub static NODES: AtomicU32 = AtomicU32::new(0);

/// The address of a context, for the calls that the bindings lack.
#[derive(Debug)]
pub struct Native {
    context: NonNull<sys::llama_context>,
}

impl Native {
    /// Finds the context's address and makes its decode calls obey [`URGENT`] and count into [`NODES`].
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

/// Called by llama.cpp once a graph node, on one of its compute threads.
unsafe extern "C" fn obey(_: *mut c_void) -> bool {
    NODES.fetch_add(1, Ordering::Relaxed);
    URGENT.load(Ordering::Relaxed) > 0
}
