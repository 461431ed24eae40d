//! Settings in layers: defaults < file < environment < arguments.
