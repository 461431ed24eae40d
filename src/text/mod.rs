//! Words to lines: width, wrapping, sanitising.
