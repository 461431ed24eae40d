//! Drawing only.
