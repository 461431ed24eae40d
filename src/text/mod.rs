//! Words to lines: what may reach the terminal, how wide it is, where it breaks.

mod diff;
mod sanitise;
mod wrap;

pub use diff::{Difference, difference};
pub use sanitise::{Sanitiser, sanitise, sanitise_line};
pub use wrap::{Wrapped, fit, width};
