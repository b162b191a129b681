//! Weights on their way to a device, one at a time.

use model::weights::WeightSpec;
use pjrt::{AlignedBytes, Buffer, Client, DType, Device};

use crate::{Checkpoint, Error, assemble};

/// How far an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The weight that has just been handed to the device.
    pub weight: &'a str,
    /// Weights handed over, of all.
    pub done: usize,
    pub total: usize,
    /// Bytes handed over, of all, as they lie on the device.
    pub done_bytes: u64,
    pub total_bytes: u64,
}

impl Checkpoint {
    /// Puts every weight on `device`, in the order of [`Checkpoint::weights`]. On a device that shares the host's memory the
    /// values stay where they were assembled; elsewhere the host holds a weight until the device has taken it.
    ///
    /// # Errors
    /// As [`Checkpoint::assemble`], or what the device says. What was uploaded is freed.
    pub fn upload(
        &self,
        client: &Client,
        device: &Device,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<Vec<Buffer>, Error> {
        let bytes = |weight: &WeightSpec| (weight.elements() * size_of::<f32>()) as u64;
        let total_bytes = self.weights().iter().map(bytes).sum();
        let mut buffers = Vec::with_capacity(self.weights().len());
        let mut done_bytes = 0;
        for weight in self.weights() {
            let buffer = self.upload_one(weight, client, device)?;
            buffers.push(buffer);
            done_bytes += bytes(weight);
            progress(Progress {
                weight: &weight.name,
                done: buffers.len(),
                total: self.weights().len(),
                done_bytes,
                total_bytes,
            });
        }
        Ok(buffers)
    }

    fn upload_one(&self, weight: &WeightSpec, client: &Client, device: &Device) -> Result<Buffer, Error> {
        let refused = |source| Error::Device { weight: weight.name.clone(), source };
        let mut bytes = AlignedBytes::zeroed(weight.elements() * size_of::<f32>());
        assemble::fill(&self.folder, weight, bytemuck::cast_slice_mut(&mut bytes))?;
        let dims: Vec<i64> = weight.dims.iter().map(|&dim| dim as i64).collect();
        let buffer = client.buffer_from_aligned(bytes, DType::F32, &dims, device).map_err(refused)?;
        // Waiting here is what keeps the host from holding every weight at once.
        buffer.ready().and_then(|ready| ready.wait()).map_err(refused)?;
        Ok(buffer)
    }
}
