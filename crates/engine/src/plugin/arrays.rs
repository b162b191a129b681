use pjrt::{AlignedBytes, Buffer, DType};
use programs::{ShapeLadder, StateArray};

use super::{Place, StateShape};
use crate::Error;

/// The state arrays as they are after the last program that was handed to the device.
#[derive(Debug)]
pub(super) struct Arrays {
    /// In the order of [`StateArray::ALL`].
    buffers: Vec<Buffer>,
    state: StateShape,
    ladder: ShapeLadder,
    poison: bool,
}

impl Arrays {
    /// New arrays: zeros, or garbage (NaN, negative counts) to show that nothing unwritten is read.
    pub(super) fn new(
        place: &Place,
        state: &StateShape,
        ladder: &ShapeLadder,
        poison: bool,
    ) -> Result<Self, Error> {
        let mut arrays = Self { buffers: Vec::new(), state: *state, ladder: ladder.clone(), poison };
        arrays.renew(place)?;
        Ok(arrays)
    }

    /// Makes all of them anew.
    pub(super) fn renew(&mut self, place: &Place) -> Result<(), Error> {
        // The old ones go first: there may be no room for both.
        self.buffers.clear();
        for what in StateArray::ALL {
            self.buffers.push(self.fresh(place, what)?);
        }
        Ok(())
    }

    fn fresh(&self, place: &Place, what: StateArray) -> Result<Buffer, Error> {
        let ty = what.ty(&self.state, &self.ladder);
        let elements = usize::try_from(ty.elements()).unwrap_or(0);
        let (dtype, garbage) = match ty.dtype {
            // All bits set: NaN as f32, -1 as s32.
            programs::DType::F32 => (DType::F32, 0xff),
            programs::DType::S32 => (DType::S32, 0xff),
            _ => (DType::Pred, 1),
        };
        let mut bytes = AlignedBytes::zeroed(elements * dtype.size());
        if self.poison {
            bytes.fill(garbage);
        }
        Ok(place.client.buffer_from_aligned(bytes, dtype, &ty.dims, place.device()?)?)
    }

    pub(super) fn get(&self, what: StateArray) -> Result<&Buffer, pjrt::Error> {
        self.buffers
            .get(what as usize)
            .ok_or_else(|| pjrt::Error::Deleted { argument: "state arrays".to_owned() })
    }

    /// What a program returned in an array's place.
    pub(super) fn replace(&mut self, what: StateArray, buffer: Buffer) {
        if let Some(place) = self.buffers.get_mut(what as usize) {
            *place = buffer;
        }
    }

    /// Whether every array still has its contents. Waits for what runs.
    pub(super) fn are_whole(&self) -> bool {
        let whole =
            |buffer: &Buffer| !buffer.is_deleted() && buffer.ready().and_then(|ready| ready.wait()).is_ok();
        self.buffers.len() == StateArray::ALL.len() && self.buffers.iter().all(whole)
    }
}
