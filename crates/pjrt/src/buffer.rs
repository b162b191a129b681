//! Arrays on a device.

use std::ptr::NonNull;
use std::sync::Arc;

use pjrt_sys as sys;

use crate::client::Client;
use crate::device::Device;
use crate::dtype::{DType, Shape};
use crate::event::{Event, null_result};
use crate::plugin::call;
use crate::{Error, Result};

/// An array on one device.
///
/// Executions take it by reference. A program that donates the argument deletes the buffer: every later use is
/// [`Error::Deleted`], and its memory lives on in the output that took it over.
pub struct Buffer {
    client: Client,
    raw: NonNull<sys::PJRT_Buffer>,
    shape: Arc<Shape>,
    /// Position among the client's devices.
    device: usize,
}

// SAFETY: PJRT buffers are thread-safe; the shape is read-only.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({}{})", self.shape, if self.is_deleted() { ", deleted" } else { "" })
    }
}

impl Buffer {
    /// Takes over a buffer whose shape is known.
    ///
    /// # Safety
    /// `raw` must be null or a live buffer of `client` that nothing else destroys, `shape` its shape, and `device` the position of its
    /// device among the client's.
    pub(crate) unsafe fn from_raw(
        client: &Client,
        raw: *mut sys::PJRT_Buffer,
        shape: impl Into<Arc<Shape>>,
        device: usize,
    ) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| null_result(client.plugin(), "PJRT_Buffer"))?;
        Ok(Self { client: client.clone(), raw, shape: shape.into(), device })
    }

    /// Element type and dimensions.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Dimensions, major to minor.
    pub fn dims(&self) -> &[i64] {
        &self.shape.dims
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.shape.dtype
    }

    /// Bytes the array takes on the host.
    pub fn size_bytes(&self) -> usize {
        self.shape.size_bytes()
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The device it lies on.
    pub fn device(&self) -> &Device {
        &self.client.devices()[self.device]
    }

    /// Whether it was donated or deleted.
    pub fn is_deleted(&self) -> bool {
        let mut args = sys::PJRT_Buffer_IsDeleted_Args { buffer: self.raw(), ..Default::default() };
        let plugin = self.client.plugin();
        // SAFETY: the buffer is live. A plugin that cannot tell counts as not deleted; the use then reports it.
        let asked = unsafe { call!(plugin, PJRT_Buffer_IsDeleted, &mut args) };
        asked.is_ok() && args.is_deleted
    }

    /// Frees the device memory now; executions that already use it finish first.
    pub fn delete(&self) -> Result<()> {
        let mut args = sys::PJRT_Buffer_Delete_Args { buffer: self.raw(), ..Default::default() };
        let plugin = self.client.plugin();
        // SAFETY: the buffer is live; deleting twice is allowed.
        unsafe { call!(plugin, PJRT_Buffer_Delete, &mut args) }
    }

    /// Ready when the contents are there; the error of the execution or transfer that failed to make them.
    pub fn ready(&self) -> Result<Event> {
        self.alive("buffer")?;
        let mut args = sys::PJRT_Buffer_ReadyEvent_Args { buffer: self.raw(), ..Default::default() };
        let plugin = self.client.plugin();
        // SAFETY: the buffer is live; the plugin hands the event over.
        unsafe {
            call!(plugin, PJRT_Buffer_ReadyEvent, &mut args)?;
            Event::from_raw(plugin, args.event)
        }
    }

    /// Bytes the array takes on its device, with padding.
    pub fn device_size_bytes(&self) -> Result<usize> {
        self.alive("buffer")?;
        let mut args = sys::PJRT_Buffer_OnDeviceSizeInBytes_Args { buffer: self.raw(), ..Default::default() };
        let plugin = self.client.plugin();
        // SAFETY: the buffer is live.
        unsafe { call!(plugin, PJRT_Buffer_OnDeviceSizeInBytes, &mut args)? };
        Ok(args.on_device_size_in_bytes)
    }

    /// The address on the device, to see whether memory was reused. Not for reading.
    pub fn address(&self) -> Result<usize> {
        self.alive("buffer")?;
        let mut args = sys::PJRT_Buffer_UnsafePointer_Args { buffer: self.raw(), ..Default::default() };
        let plugin = self.client.plugin();
        // SAFETY: the buffer is live, and the address is returned as a number.
        unsafe { call!(plugin, PJRT_Buffer_UnsafePointer, &mut args)? };
        Ok(args.buffer_pointer)
    }

    /// A copy on another device of the same client.
    pub fn copy_to_device(&self, device: &Device) -> Result<Self> {
        self.alive("buffer")?;
        let target = self.client.own(device)?;
        if target == self.device {
            return Err(Error::argument("device", "the buffer lies on this device already"));
        }
        let mut args = sys::PJRT_Buffer_CopyToDevice_Args {
            buffer: self.raw(),
            dst_device: device.raw(),
            ..Default::default()
        };
        let plugin = self.client.plugin();
        // SAFETY: the buffer is live and the device of the same client; the plugin hands the copy over.
        unsafe {
            call!(plugin, PJRT_Buffer_CopyToDevice, &mut args)?;
            Self::from_raw(&self.client, args.dst_buffer, Arc::clone(&self.shape), target)
        }
    }

    /// Position of its device among the client's.
    pub(crate) fn device_index(&self) -> usize {
        self.device
    }

    pub(crate) fn raw(&self) -> *mut sys::PJRT_Buffer {
        self.raw.as_ptr()
    }

    /// An error that names the argument, where the buffer is gone.
    pub(crate) fn alive(&self, argument: &str) -> Result<()> {
        match self.is_deleted() {
            true => Err(Error::deleted(argument)),
            false => Ok(()),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut args = sys::PJRT_Buffer_Destroy_Args { buffer: self.raw(), ..Default::default() };
        let plugin = self.client.plugin();
        // SAFETY: the buffer is live and ours; executions that use it hold its memory. Nobody to report an error to.
        let _ = unsafe { call!(plugin, PJRT_Buffer_Destroy, &mut args) };
    }
}
