//! From flags to drain: what every program does before and after its work.
