use std::hint::black_box;
use std::time::{Duration, Instant};

use kvxfer::segment::SEGMENT_BYTES;
use twox_hash::XxHash3_128;

/// CPU seconds a digest takes for a GB of blocks that lie in cache, as they do when the socket has just moved them.
pub(crate) fn seconds_per_gb() -> f64 {
    let secret = [5; 192];
    let block = vec![7; SEGMENT_BYTES as usize];
    let mut best = Duration::MAX;
    for _ in 0..500 {
        let started = Instant::now();
        _ = black_box(XxHash3_128::oneshot_with_secret(&secret, black_box(&block)));
        best = best.min(started.elapsed());
    }
    best.as_secs_f64() * 1e9 / SEGMENT_BYTES as f64
}
