use std::ops::Range;
use std::sync::Arc;

use super::HostBytes;

/// What one device gets of a weight.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) dims: Vec<usize>,
    bytes: Arc<HostBytes>,
    range: Range<usize>,
}

impl Share {
    /// Everybody's shares of a weight that is cut evenly along an axis; without an axis all get the same bytes, held once.
    pub(super) fn of(whole: HostBytes, dims: &[usize], cut: Option<usize>, count: usize) -> Vec<Self> {
        let Some(axis) = cut.filter(|_| count > 1) else {
            let range = 0..whole.len();
            let bytes = Arc::new(whole);
            let one = |_| Self { dims: dims.to_vec(), bytes: Arc::clone(&bytes), range: range.clone() };
            return (0..count).map(one).collect();
        };
        let mut own = dims.to_vec();
        own[axis] /= count;
        let outer: usize = dims[..axis].iter().product();
        let row = whole.len() / outer.max(1);
        let part = row / count;
        if outer == 1 {
            let bytes = Arc::new(whole);
            let one = |at: usize| Self {
                dims: own.clone(),
                bytes: Arc::clone(&bytes),
                range: at * part..(at + 1) * part,
            };
            return (0..count).map(one).collect();
        }
        let gathered = |at: usize| {
            let mut bytes = HostBytes::zeroed(outer * part);
            for (to, from) in bytes.chunks_exact_mut(part.max(1)).zip(whole.chunks_exact(row.max(1))) {
                to.copy_from_slice(&from[at * part..(at + 1) * part]);
            }
            Self { dims: own.clone(), bytes: Arc::new(bytes), range: 0..outer * part }
        };
        (0..count).map(gathered).collect()
    }
}

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}
