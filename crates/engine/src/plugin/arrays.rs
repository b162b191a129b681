use pjrt::{AlignedBytes, Buffer, DType};
use programs::{ShapeLadder, StateArray};
use statepool::{PageId, SlotId};

use super::{Place, Spread, StateShape};
use crate::Error;

/// The state arrays as they are after the last program that was handed to the device.
#[derive(Debug)]
pub(super) struct Arrays {
    buffers: Vec<(StateArray, Spread)>,
    /// What one device keeps of a sequence.
    share: StateShape,
    ladder: ShapeLadder,
    poison: bool,
}

impl Arrays {
    /// New arrays: zeros, or garbage (NaN, negative counts) to show that nothing unwritten is read.
    pub(super) fn new(
        place: &Place,
        share: &StateShape,
        ladder: &ShapeLadder,
        poison: bool,
    ) -> Result<Self, Error> {
        let mut arrays = Self { buffers: Vec::new(), share: *share, ladder: ladder.clone(), poison };
        arrays.renew(place)?;
        Ok(arrays)
    }

    /// Makes all of them anew.
    pub(super) fn renew(&mut self, place: &Place) -> Result<(), Error> {
        // The old ones go first: there may be no room for both.
        self.buffers.clear();
        for what in StateArray::of(&self.share, &self.ladder) {
            self.buffers.push((what, self.fresh(place, what)?));
        }
        Ok(())
    }

    fn fresh(&self, place: &Place, what: StateArray) -> Result<Spread, pjrt::Error> {
        let ty = what.ty(&self.share, &self.ladder);
        let dtype = held(ty.dtype);
        let elements = usize::try_from(ty.elements()).unwrap_or(0);
        place.each(|device| {
            let mut bytes = AlignedBytes::zeroed(elements * dtype.size());
            if self.poison {
                bytes.fill(if dtype == DType::Pred { 1 } else { GARBAGE });
            }
            place.client().buffer_from_aligned(bytes, dtype, &ty.dims, device)
        })
    }

    /// Fills pages and a slot with garbage, what draws read excepted. Takes every array to the host and back.
    pub(super) fn poison(&mut self, place: &Place, pages: &[PageId], slot: SlotId) -> Result<(), Error> {
        let pages: Vec<usize> = pages.iter().map(|page| page.0 as usize).collect();
        let slot = [slot.0 as usize];
        for (what, spread) in &mut self.buffers {
            let (axis, rows) = match what {
                StateArray::Latents | StateArray::IndexKeys => (1, pages.as_slice()),
                StateArray::IndexRing
                | StateArray::Recurrent
                | StateArray::Tails
                | StateArray::WindowKeys
                | StateArray::WindowDecay
                | StateArray::WindowWritten => (1, slot.as_slice()),
                StateArray::Hidden => (0, slot.as_slice()),
                StateArray::OutputCounts | StateArray::PromptSeen | StateArray::LogitBias => continue,
            };
            for (buffer, device) in spread.each_mut().iter_mut().zip(place.devices()) {
                let bytes = poisoned(buffer, axis, rows)?;
                let (dtype, dims) = (buffer.dtype(), buffer.dims());
                *buffer = place.client().buffer_from_aligned(bytes, dtype, dims, device)?;
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, what: StateArray) -> Result<&Spread, pjrt::Error> {
        let found = self.buffers.iter().find(|(array, _)| *array == what);
        let lost = || pjrt::Error::Deleted { argument: format!("state array {what:?}") };
        found.map(|(_, spread)| spread).ok_or_else(lost)
    }

    /// What a program returned in an array's place.
    pub(super) fn replace(&mut self, what: StateArray, spread: Spread) {
        if let Some((_, place)) = self.buffers.iter_mut().find(|(array, _)| *array == what) {
            *place = spread;
        }
    }

    /// Whether every array still has its contents. Waits for what runs.
    pub(super) fn are_whole(&self) -> bool {
        let whole =
            |buffer: &Buffer| !buffer.is_deleted() && buffer.ready().and_then(|ready| ready.wait()).is_ok();
        let all = StateArray::of(&self.share, &self.ladder).len();
        self.buffers.len() == all && self.buffers.iter().all(|(_, spread)| spread.each().iter().all(whole))
    }
}

/// What a buffer holds, with rows along an axis filled with garbage.
fn poisoned(buffer: &Buffer, axis: usize, rows: &[usize]) -> Result<AlignedBytes, pjrt::Error> {
    let dims: Vec<usize> = buffer.dims().iter().map(|dim| usize::try_from(*dim).unwrap_or(0)).collect();
    let mut bytes = AlignedBytes::zeroed(buffer.size_bytes());
    buffer.to_host(&mut bytes)?;
    let row = dims[axis + 1..].iter().product::<usize>() * buffer.dtype().size();
    let layer = dims[axis] * row;
    for layer in bytes.chunks_exact_mut(layer.max(1)) {
        for index in rows {
            layer[index * row..(index + 1) * row].fill(GARBAGE);
        }
    }
    Ok(bytes)
}

/// All bits set: NaN as f32 and bf16, -1 as s32.
const GARBAGE: u8 = 0xff;

fn held(dtype: programs::DType) -> DType {
    match dtype {
        programs::DType::BF16 => DType::BF16,
        programs::DType::S32 => DType::S32,
        programs::DType::Pred => DType::Pred,
        _ => DType::F32,
    }
}
