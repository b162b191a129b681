//! Host to device: copies, and aliases of host memory.

use std::ffi::c_void;

use pjrt_sys as sys;

use crate::buffer::Buffer;
use crate::client::Client;
use crate::device::Device;
use crate::dtype::{DType, Element, Shape};
use crate::event::Event;
use crate::host::AlignedBytes;
use crate::plugin::call;
use crate::{Error, Result};

impl Client {
    /// Copies `bytes` to `device` as a dense array, major to minor. The bytes are free again when this returns.
    pub fn buffer_from_host(
        &self,
        bytes: &[u8],
        dtype: DType,
        dims: &[i64],
        device: &Device,
    ) -> Result<Buffer> {
        let (buffer, _done) =
            self.upload(bytes, dtype, dims, device, sys::PJRT_IMMUTABLE_ONLY_DURING_CALL)?;
        Ok(buffer)
    }

    /// As [`buffer_from_host`](Self::buffer_from_host), from numbers.
    pub fn buffer_from_slice<T: Element>(
        &self,
        elements: &[T],
        dims: &[i64],
        device: &Device,
    ) -> Result<Buffer> {
        self.buffer_from_host(bytemuck::cast_slice(elements), T::DTYPE, dims, device)
    }

    /// Uploads without waiting: `owner` stays alive until the plugin has read its bytes, then it is dropped, on any thread.
    pub fn buffer_from_owned<O>(
        &self,
        owner: O,
        dtype: DType,
        dims: &[i64],
        device: &Device,
    ) -> Result<Buffer>
    where
        O: AsRef<[u8]> + Send + 'static,
    {
        self.upload_owned(Box::new(owner), dtype, dims, device, sys::PJRT_IMMUTABLE_UNTIL_TRANSFER_COMPLETES)
    }

    /// A buffer that may read the bytes in place for its whole life: for weights in a memory map. Where the plugin cannot (not
    /// on a 64-byte boundary, not host memory) it copies. `owner` is dropped when the plugin no longer reads it. A donation of
    /// such a buffer costs a copy, because the bytes are not the plugin's to write.
    pub fn buffer_from_shared<O>(
        &self,
        owner: O,
        dtype: DType,
        dims: &[i64],
        device: &Device,
    ) -> Result<Buffer>
    where
        O: AsRef<[u8]> + Send + Sync + 'static,
    {
        self.upload_owned(Box::new(owner), dtype, dims, device, sys::PJRT_IMMUTABLE_ZERO_COPY)
    }

    /// A buffer that takes the bytes over and may write them: a donated one keeps its place in memory. 256 MiB take
    /// microseconds this way, and 180 ms as a copy. The memory is freed when the plugin is done with it.
    pub fn buffer_from_aligned(
        &self,
        bytes: AlignedBytes,
        dtype: DType,
        dims: &[i64],
        device: &Device,
    ) -> Result<Buffer> {
        self.upload_owned(Box::new(bytes), dtype, dims, device, sys::PJRT_MUTABLE_ZERO_COPY)
    }

    /// A buffer with arbitrary contents, for arrays a program will overwrite. Not every plugin has it.
    pub fn buffer_uninit(&self, dtype: DType, dims: &[i64], device: &Device) -> Result<Buffer> {
        let shape = Shape::checked(dtype, dims)?;
        let device_index = self.own(device)?;
        let mut args = sys::PJRT_Client_CreateUninitializedBuffer_Args {
            client: self.raw(),
            shape_dims: dims.as_ptr(),
            shape_num_dims: dims.len(),
            shape_element_type: dtype.to_pjrt(),
            device: device.raw(),
            ..Default::default()
        };
        // SAFETY: the dims live past the call, the device is this client's.
        unsafe { call!(self.plugin(), PJRT_Client_CreateUninitializedBuffer, &mut args)? };
        // SAFETY: the plugin handed the buffer over.
        unsafe { Buffer::from_raw(self, args.buffer, shape, device_index) }
    }

    fn upload_owned<O>(
        &self,
        owner: Box<O>,
        dtype: DType,
        dims: &[i64],
        device: &Device,
        semantics: sys::PJRT_HostBufferSemantics,
    ) -> Result<Buffer>
    where
        O: AsRef<[u8]> + Send + 'static,
    {
        // Boxed before its bytes are looked at: they may lie inside the owner itself, which must not move any more.
        let (buffer, done) = self.upload((*owner).as_ref(), dtype, dims, device, semantics)?;
        done.on_ready(move |_outcome| drop(owner));
        Ok(buffer)
    }

    fn upload(
        &self,
        bytes: &[u8],
        dtype: DType,
        dims: &[i64],
        device: &Device,
        semantics: sys::PJRT_HostBufferSemantics,
    ) -> Result<(Buffer, Event)> {
        let shape = Shape::checked(dtype, dims)?;
        let device_index = self.own(device)?;
        if bytes.len() != shape.size_bytes() {
            let message = format!("{} bytes given, {shape} takes {}", bytes.len(), shape.size_bytes());
            return Err(Error::argument("bytes", message));
        }
        let mut args = sys::PJRT_Client_BufferFromHostBuffer_Args {
            client: self.raw(),
            data: bytes.as_ptr().cast::<c_void>(),
            kind: dtype.to_pjrt(),
            dims: dims.as_ptr(),
            num_dims: dims.len(),
            host_buffer_semantics: semantics,
            device: device.raw(),
            ..Default::default()
        };
        // SAFETY: the bytes are as long as the shape says; they live past the call, and for the other semantics until the
        // event is ready because `upload_owned` gives the owner to that event.
        unsafe { call!(self.plugin(), PJRT_Client_BufferFromHostBuffer, &mut args)? };
        // SAFETY: the plugin handed both over. Should one be missing, the memory must not be freed under the plugin; a plugin
        // that breaks its contract this way is beyond saving and the error says so.
        unsafe {
            let done = Event::from_raw(self.plugin(), args.done_with_host_buffer)?;
            Ok((Buffer::from_raw(self, args.buffer, shape, device_index)?, done))
        }
    }
}
