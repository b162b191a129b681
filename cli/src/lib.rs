//! tandem: a whole local cluster, generate, bench.
