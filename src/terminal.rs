//! The terminal: enter and leave, input thread, signals, clipboard.
