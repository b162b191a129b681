//! Weights on their way to a device: assembled in slabs, the device taking one while the next is assembled.

use std::collections::VecDeque;
use std::ops::Range;

use model::weights::{Encoding, Float, WeightSpec};
use pjrt::{Buffer, Client, DType, Device, Shape, Transfer, TransferManager};

use crate::assemble::{self, Room};
use crate::int8::Squares;
use crate::plan::Plan;
use crate::{Checkpoint, Error};
use host::HostBytes;

mod host;

/// Bytes assembled at a time, or one row of a weight where that is longer.
pub const SLAB_BYTES: usize = 64 << 20;
/// Slabs that the host holds at most: one being assembled, one that the device is taking.
pub const SLABS: usize = 2;

/// How far an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The weight that is being assembled or has just been handed to the device.
    pub weight: &'a str,
    /// Weights handed over, of all.
    pub done: usize,
    pub total: usize,
    /// Bytes assembled, of all, as they lie on the device.
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// How a device takes a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// In one piece: the device reads the host's memory in place, or orders the values its own way.
    Whole,
    /// Slab by slab, into memory that has the host's order.
    Slabs,
}

impl Landing {
    fn of(client: &Client) -> Self {
        match client.platform_name() {
            "cuda" | "rocm" => Self::Slabs,
            _ => Self::Whole,
        }
    }
}

/// Bytes of a weight as they lie on a device.
pub(crate) fn bytes(weight: &WeightSpec) -> usize {
    weight.elements() * dtype(weight.encoding).size()
}

fn dtype(encoding: Encoding) -> DType {
    match encoding {
        Encoding::Float(Float::F32) | Encoding::Int8Scales => DType::F32,
        Encoding::Float(Float::Bf16) => DType::BF16,
        Encoding::Packed | Encoding::PackedScales => DType::U8,
        Encoding::Int8 => DType::S8,
    }
}

impl Checkpoint {
    /// Puts every weight on `device`, in the order of [`Checkpoint::weights`]. `progress` hears of every slab and of every
    /// weight handed over.
    ///
    /// Beside what [`Checkpoint::working_bytes`] counts the host holds [`SLABS`] slabs of [`SLAB_BYTES`] where the device has
    /// memory of its own in the host's order (CUDA, ROCm). A device that shares the host's memory keeps the values where
    /// they were assembled, which costs the host nothing more. Others take a weight as a whole: then the host holds two.
    ///
    /// # Errors
    /// As [`Checkpoint::assemble`], or what the device says. What was uploaded is freed.
    pub fn upload(
        &self,
        client: &Client,
        device: &Device,
        progress: impl FnMut(Progress<'_>),
    ) -> Result<Vec<Buffer>, Error> {
        self.upload_by(Landing::of(client), client, device, progress)
    }

    pub(crate) fn upload_by(
        &self,
        landing: Landing,
        client: &Client,
        device: &Device,
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<Vec<Buffer>, Error> {
        let total = self.weights().len();
        let total_bytes = self.weights().iter().map(|weight| bytes(weight) as u64).sum();
        let (mut done_bytes, mut scales) = (0, None);
        let mut transit = Transit { client, device, landing, under_way: VecDeque::new() };
        let mut buffers = Vec::with_capacity(total);
        for weight in self.weights() {
            let done = buffers.len();
            let mut tell = |done, bytes: usize| {
                done_bytes += bytes as u64;
                progress(Progress { weight: &weight.name, done, total, done_bytes, total_bytes });
            };
            let buffer = match scales.take() {
                // They were found when the weight before was assembled.
                Some(found) if weight.encoding == Encoding::Int8Scales => {
                    tell(done, bytes(weight));
                    transit.send_whole(weight, found)?
                }
                _ => {
                    let mut found = HostBytes::zeroed(self.scale_bytes(weight));
                    let buffer = self.send(weight, &mut found, &mut transit, |bytes| tell(done, bytes))?;
                    scales = (!found.is_empty()).then_some(found);
                    buffer
                }
            };
            buffers.push(buffer);
            tell(buffers.len(), 0);
        }
        transit.wait_until(0)?;
        Ok(buffers)
    }

    /// Bytes of an int8 weight's scales, 0 for others. They are the next weight.
    fn scale_bytes(&self, weight: &WeightSpec) -> usize {
        let row = weight.dims.last().copied().unwrap_or(1).max(1);
        if weight.encoding == Encoding::Int8 { weight.elements() / row * size_of::<f32>() } else { 0 }
    }

    fn send(
        &self,
        weight: &WeightSpec,
        scales: &mut [u8],
        transit: &mut Transit<'_>,
        mut tell: impl FnMut(usize),
    ) -> Result<Buffer, Error> {
        let plan = Plan::new(&self.folder, weight)?;
        let step = plan.whole_units(SLAB_BYTES * plan.unit / plan.bytes(plan.unit).max(1));
        let mut squares = Squares::default();
        let mut slab = |range: Range<usize>, bytes: &mut [u8]| {
            let rows = if scales.is_empty() { 0..0 } else { range.start / plan.unit..range.end / plan.unit };
            let scales = &mut scales[rows.start * size_of::<f32>()..rows.end * size_of::<f32>()];
            let assembled = bytes.len();
            squares += assemble::fill(&plan, range, Room { bytes, scales })?;
            tell(assembled);
            Ok::<(), Error>(())
        };
        let slabs = (0..plan.values).step_by(step).map(|start| start..(start + step).min(plan.values));
        let buffer = match transit.landing {
            Landing::Whole => {
                let mut whole = HostBytes::zeroed(bytes(weight));
                for range in slabs {
                    let place = plan.bytes(range.start)..plan.bytes(range.end);
                    slab(range, &mut whole[place])?;
                }
                transit.send_whole(weight, whole)?
            }
            Landing::Slabs => {
                let open = transit.open(weight)?;
                for range in slabs {
                    let last = range.end == plan.values;
                    let mut own = HostBytes::zeroed(plan.bytes(range.len()));
                    let offset = plan.bytes(range.start);
                    slab(range, &mut own)?;
                    transit.send_slab(weight, &open, own, offset, last)?;
                }
                open.retrieve(0).map_err(|source| refused(weight, source))?
            }
        };
        self.converted(weight, squares);
        Ok(buffer)
    }
}

/// What has been sent to the device and may not have arrived.
struct Transit<'a> {
    client: &'a Client,
    device: &'a Device,
    landing: Landing,
    under_way: VecDeque<(String, Sent)>,
}

enum Sent {
    Whole(pjrt::Event),
    Slab(Transfer<HostBytes>),
}

impl Transit<'_> {
    fn send_whole(&mut self, weight: &WeightSpec, bytes: HostBytes) -> Result<Buffer, Error> {
        let dims = dims(weight);
        let sent = self.client.buffer_from_shared(bytes, dtype(weight.encoding), &dims, self.device);
        let buffer = sent.map_err(|source| refused(weight, source))?;
        let ready = buffer.ready().map_err(|source| refused(weight, source))?;
        self.sent(weight, Sent::Whole(ready))?;
        Ok(buffer)
    }

    fn open(&self, weight: &WeightSpec) -> Result<TransferManager, Error> {
        let shape = Shape::new(dtype(weight.encoding), &dims(weight));
        self.client.async_transfer(&[shape], self.device).map_err(|source| refused(weight, source))
    }

    fn send_slab(
        &mut self,
        weight: &WeightSpec,
        to: &TransferManager,
        slab: HostBytes,
        offset: usize,
        last: bool,
    ) -> Result<(), Error> {
        let sent = to.transfer_raw(0, slab, offset, last).map_err(|source| refused(weight, source))?;
        self.sent(weight, Sent::Slab(sent))
    }

    fn sent(&mut self, weight: &WeightSpec, sent: Sent) -> Result<(), Error> {
        self.under_way.push_back((weight.name.clone(), sent));
        self.wait_until(SLABS - 1)
    }

    /// Waits until at most this many are under way: this is what bounds the host's memory.
    fn wait_until(&mut self, most: usize) -> Result<(), Error> {
        while self.under_way.len() > most {
            let Some((weight, sent)) = self.under_way.pop_front() else { break };
            let arrived = match sent {
                Sent::Whole(ready) => ready.wait(),
                Sent::Slab(transfer) => transfer.wait().map(drop),
            };
            arrived.map_err(|source| Error::Device { weight, source: Box::new(source) })?;
        }
        Ok(())
    }
}

fn refused(weight: &WeightSpec, source: pjrt::Error) -> Error {
    Error::Device { weight: weight.name.clone(), source: Box::new(source) }
}

fn dims(weight: &WeightSpec) -> Vec<i64> {
    weight.dims.iter().map(|&dim| dim as i64).collect()
}

#[cfg(test)]
mod tests;
