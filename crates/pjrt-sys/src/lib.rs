//! The PJRT C API as repr(C) Rust, loaded at run time; no code of its own.
