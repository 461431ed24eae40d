//! Where files live.
