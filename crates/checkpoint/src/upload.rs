//! Weights on their way to devices: assembled in slabs, a device taking one while the next is assembled.

use std::collections::VecDeque;
use std::ops::Range;

use model::weights::{Encoding, Float, WeightSpec};
use pjrt::{Buffer, Client, DType, Device, Shape, Transfer, TransferManager};

use crate::assemble::{self, Room};
use crate::int8::Squares;
use crate::plan::Plan;
use crate::{Checkpoint, Error};
use host::HostBytes;
use share::Share;

mod host;
mod share;

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

/// How devices take a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// In one piece: the device reads the host's memory in place, or orders the values its own way, or there are several
    /// and each takes its share.
    Whole,
    /// Slab by slab, into memory that has the host's order.
    Slabs,
}

impl Landing {
    fn of(client: &Client, devices: &[Device]) -> Self {
        match client.platform_name() {
            "cuda" | "rocm" if devices.len() == 1 => Self::Slabs,
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
    /// Puts every weight on `devices`, in the order of [`Checkpoint::weights`]: of each weight a buffer on each device. Several
    /// devices get their shares of what is cut ([`WeightSpec::cut`]), and the whole of what is not. `progress` hears of
    /// every slab and of every weight handed over.
    ///
    /// Beside what [`Checkpoint::working_bytes`] counts the host holds [`SLABS`] slabs of [`SLAB_BYTES`] where one device has
    /// memory of its own in the host's order (CUDA, ROCm). Devices that share the host's memory keep the values where
    /// they were assembled, which costs the host nothing more. Others take a weight as a whole: then the host holds two, and
    /// the shares of both where shares do not lie in one piece.
    ///
    /// # Errors
    /// As [`Checkpoint::assemble`], or what a device says. What was uploaded is freed.
    pub fn upload(
        &self,
        client: &Client,
        devices: &[Device],
        progress: impl FnMut(Progress<'_>),
    ) -> Result<Vec<Vec<Buffer>>, Error> {
        self.upload_by(Landing::of(client, devices), client, devices, progress)
    }

    pub(crate) fn upload_by(
        &self,
        landing: Landing,
        client: &Client,
        devices: &[Device],
        mut progress: impl FnMut(Progress<'_>),
    ) -> Result<Vec<Vec<Buffer>>, Error> {
        let total = self.weights().len();
        let total_bytes = self.weights().iter().map(|weight| bytes(weight) as u64).sum();
        let (mut done_bytes, mut scales) = (0, None);
        let mut transit = Transit { client, devices, landing, under_way: VecDeque::new() };
        let mut buffers = Vec::with_capacity(total);
        for weight in self.weights() {
            let done = buffers.len();
            let mut tell = |done, bytes: usize| {
                done_bytes += bytes as u64;
                progress(Progress { weight: &weight.name, done, total, done_bytes, total_bytes });
            };
            let each = match scales.take() {
                // They were found when the weight before was assembled.
                Some(found) if weight.encoding == Encoding::Int8Scales => {
                    tell(done, bytes(weight));
                    transit.send_whole(weight, found)?
                }
                _ => {
                    let mut found = HostBytes::zeroed(self.scale_bytes(weight));
                    let each = self.send(weight, &mut found, &mut transit, |bytes| tell(done, bytes))?;
                    scales = (!found.is_empty()).then_some(found);
                    each
                }
            };
            buffers.push(each);
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
    ) -> Result<Vec<Buffer>, Error> {
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
        let buffers = match transit.landing {
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
                vec![open.retrieve(0).map_err(|source| refused(weight, source))?]
            }
        };
        self.converted(weight, squares);
        Ok(buffers)
    }
}

/// What has been sent to the devices and may not have arrived.
struct Transit<'a> {
    client: &'a Client,
    devices: &'a [Device],
    landing: Landing,
    under_way: VecDeque<(String, Sent)>,
}

enum Sent {
    Whole(Vec<pjrt::Event>),
    Slab(Transfer<HostBytes>),
}

impl Transit<'_> {
    /// To each device its share.
    fn send_whole(&mut self, weight: &WeightSpec, bytes: HostBytes) -> Result<Vec<Buffer>, Error> {
        let shares = Share::of(bytes, &weight.dims, weight.cut, self.devices.len());
        let (mut buffers, mut arrivals) = (Vec::new(), Vec::new());
        for (share, device) in shares.into_iter().zip(self.devices) {
            let dims = dims(&share.dims);
            let sent = self.client.buffer_from_shared(share, dtype(weight.encoding), &dims, device);
            let buffer = sent.map_err(|source| refused(weight, source))?;
            arrivals.push(buffer.ready().map_err(|source| refused(weight, source))?);
            buffers.push(buffer);
        }
        self.sent(weight, Sent::Whole(arrivals))?;
        Ok(buffers)
    }

    fn open(&self, weight: &WeightSpec) -> Result<TransferManager, Error> {
        let shape = Shape::new(dtype(weight.encoding), &dims(&weight.dims));
        let no_device =
            || pjrt::Error::Argument { argument: "devices".to_owned(), message: "are none".to_owned() };
        let device = self.devices.first().ok_or_else(no_device).map_err(|source| refused(weight, source))?;
        self.client.async_transfer(&[shape], device).map_err(|source| refused(weight, source))
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
                Sent::Whole(each) => each.iter().try_for_each(pjrt::Event::wait),
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

fn dims(axes: &[usize]) -> Vec<i64> {
    axes.iter().map(|&dim| dim as i64).collect()
}

#[cfg(test)]
mod tests;
