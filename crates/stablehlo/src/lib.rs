//! Build typed StableHLO, with shardings and donations, and print it.
