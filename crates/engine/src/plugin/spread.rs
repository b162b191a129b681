use pjrt::{Buffer, Element};

/// An array on each device of a place: alike on all of them, or each device's share.
#[derive(Debug)]
pub(super) struct Spread(Vec<Buffer>);

impl Spread {
    pub(super) fn new(each: Vec<Buffer>) -> Self {
        Self(each)
    }

    /// Every device's results in order, as the results of all devices.
    pub(super) fn of_results(devices: Vec<Vec<Buffer>>) -> Vec<Self> {
        let count = devices.first().map_or(0, Vec::len);
        let mut devices: Vec<_> = devices.into_iter().map(Vec::into_iter).collect();
        (0..count).map(|_| Self(devices.iter_mut().filter_map(Iterator::next).collect())).collect()
    }

    /// In the order of devices.
    pub(super) fn each(&self) -> &[Buffer] {
        &self.0
    }

    pub(super) fn each_mut(&mut self) -> &mut [Buffer] {
        &mut self.0
    }

    /// What all devices have alike, once it is there.
    pub(super) fn read<T: Element>(&self) -> Result<Vec<T>, pjrt::Error> {
        self.0.first().map_or_else(|| Ok(Vec::new()), Buffer::to_vec)
    }

    /// The shares of an array that is cut along an axis, joined.
    pub(super) fn read_cut(&self, axis: usize) -> Result<Vec<f32>, pjrt::Error> {
        let [first, _, ..] = self.0.as_slice() else { return self.read() };
        let dims: Vec<usize> = first.dims().iter().map(|&dim| usize::try_from(dim).unwrap_or(0)).collect();
        let shares = self.0.iter().map(Buffer::to_vec).collect::<Result<Vec<_>, _>>()?;
        Ok(join(&shares, &dims, axis))
    }
}

/// Shares of an array with the given axis lengths, cut evenly along an axis.
pub(super) fn cut(elements: &[f32], dims: &[usize], axis: usize, count: usize) -> Vec<Vec<f32>> {
    let row: usize = dims[axis..].iter().product();
    let part = row / count;
    let share = |at: usize| {
        elements.chunks_exact(row.max(1)).flat_map(|row| &row[at * part..(at + 1) * part]).copied().collect()
    };
    (0..count).map(share).collect()
}

/// The array whose shares, each with the given axis lengths, were cut along an axis.
fn join(shares: &[Vec<f32>], dims: &[usize], axis: usize) -> Vec<f32> {
    let part = dims[axis..].iter().product::<usize>().max(1);
    let mut whole = Vec::with_capacity(shares.iter().map(Vec::len).sum());
    for at in 0..dims[..axis].iter().product() {
        for share in shares {
            whole.extend_from_slice(&share[at * part..(at + 1) * part]);
        }
    }
    whole
}
