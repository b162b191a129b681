//! Device to host: whole arrays and byte ranges.

use std::ffi::c_void;

use pjrt_sys as sys;

use crate::buffer::Buffer;
use crate::dtype::Element;
use crate::event::{Event, Transfer};
use crate::plugin::call;
use crate::{Error, Result};

impl Buffer {
    /// Copies the array into `target`, dense, major to minor, and waits for it. Blocks until the contents are there.
    pub fn to_host(&self, target: &mut [u8]) -> Result<()> {
        let event = self.start_to_host(target)?;
        // The borrow of `target` lasts until the plugin is done, also when the copy fails.
        event.wait()
    }

    /// The array as numbers, once its contents are there; an error where `T` is not its element type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::argument(
                "element type",
                format!("the buffer holds {}, not {}", self.dtype(), T::DTYPE),
            ));
        }
        let mut elements = vec![T::zeroed(); self.shape().elements()];
        self.to_host(bytemuck::cast_slice_mut(&mut elements))?;
        Ok(elements)
    }

    /// Copies the array into `target` and gives it back when done.
    ///
    /// `target` may be a `Vec<u8>`, [`AlignedBytes`](crate::AlignedBytes) or any owner of bytes of exactly
    /// [`size_bytes`](Self::size_bytes).
    pub fn to_host_async<O>(&self, target: O) -> Result<Transfer<O>>
    where
        O: AsMut<[u8]> + Send + 'static,
    {
        // Boxed first: the bytes may lie inside the owner, which must not move while the plugin writes.
        let mut target = Box::new(target);
        let event = self.start_to_host((*target).as_mut())?;
        Ok(Transfer::boxed(&event, target))
    }

    /// Copies the bytes `offset..offset + target.len()` of the array as it lies on the device, and gives `target` back when
    /// done. On the CPU that is the dense host layout; elsewhere the device's own.
    pub fn copy_raw_to_host<O>(&self, target: O, offset: usize) -> Result<Transfer<O>>
    where
        O: AsMut<[u8]> + Send + 'static,
    {
        let size = self.device_size_bytes()?;
        let mut target = Box::new(target);
        let bytes = (*target).as_mut();
        if offset.checked_add(bytes.len()).is_none_or(|end| end > size) {
            let message =
                format!("{} bytes from {offset} on are not within the {size} of the buffer", bytes.len());
            return Err(Error::argument("offset", message));
        }
        let mut args = sys::PJRT_Buffer_CopyRawToHost_Args {
            buffer: self.raw(),
            dst: bytes.as_mut_ptr().cast::<c_void>(),
            offset: offset as i64,
            transfer_size: bytes.len() as i64,
            ..Default::default()
        };
        let plugin = self.client().plugin();
        // SAFETY: the range is inside the buffer; `target` is boxed and kept by the transfer until the event is ready.
        let event = unsafe {
            call!(plugin, PJRT_Buffer_CopyRawToHost, &mut args)?;
            Event::from_raw(plugin, args.event)?
        };
        Ok(Transfer::boxed(&event, target))
    }

    /// Starts a dense copy. The caller keeps `target` alive and untouched until the event is ready.
    fn start_to_host(&self, target: &mut [u8]) -> Result<Event> {
        self.alive("buffer")?;
        if target.len() != self.size_bytes() {
            let message =
                format!("{} bytes given, {} takes {}", target.len(), self.shape(), self.size_bytes());
            return Err(Error::argument("target", message));
        }
        // Asked for in so many words: without it the plugin answers in the layout the array has on its device.
        let minor_to_major: Vec<i64> = (0..self.dims().len() as i64).rev().collect();
        let mut layout = sys::PJRT_Buffer_MemoryLayout {
            layout: sys::PJRT_Buffer_MemoryLayout_Union {
                tiled: sys::PJRT_Buffer_MemoryLayout_Tiled {
                    minor_to_major: minor_to_major.as_ptr(),
                    minor_to_major_size: minor_to_major.len(),
                    ..Default::default()
                },
            },
            kind: sys::PJRT_MEMORY_LAYOUT_TILED,
            ..Default::default()
        };
        let mut args = sys::PJRT_Buffer_ToHostBuffer_Args {
            src: self.raw(),
            host_layout: &mut layout,
            dst: target.as_mut_ptr().cast::<c_void>(),
            dst_size: target.len(),
            ..Default::default()
        };
        let plugin = self.client().plugin();
        // SAFETY: `target` has the size of the array and outlives the event, as each caller sees to; the layout lives past
        // the call.
        unsafe {
            call!(plugin, PJRT_Buffer_ToHostBuffer, &mut args)?;
            Event::from_raw(plugin, args.event)
        }
    }
}
