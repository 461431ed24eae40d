//! How an answer is made of tokens: one after the other, or several answers at once.

pub mod beam;
mod pace;

pub use pace::Pace;
