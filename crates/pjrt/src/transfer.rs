//! Uploads in pieces: the buffers exist first, their bytes follow in any order of arrival.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;

use pjrt_sys as sys;

use crate::buffer::Buffer;
use crate::client::Client;
use crate::device::Device;
use crate::dtype::Shape;
use crate::event::{Event, Transfer, null_result};
use crate::plugin::call;
use crate::{Error, Result};

/// Fills a set of buffers on one device with bytes that arrive in pieces.
///
/// A buffer can be [retrieved](Self::retrieve) and handed to an execution before its bytes are there. Dropping the manager
/// before the last piece of a buffer makes that buffer fail instead of never becoming ready.
pub struct TransferManager {
    client: Client,
    raw: NonNull<sys::PJRT_AsyncHostToDeviceTransferManager>,
    shapes: Vec<Shape>,
    device: usize,
    progress: Mutex<Vec<Progress>>,
}

#[derive(Clone, Copy, Default)]
struct Progress {
    retrieved: bool,
    complete: bool,
}

// SAFETY: PJRT transfer managers are thread-safe; progress is behind a mutex.
unsafe impl Send for TransferManager {}
// SAFETY: as above.
unsafe impl Sync for TransferManager {}

impl std::fmt::Debug for TransferManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransferManager").field("shapes", &self.shapes).finish()
    }
}

impl Client {
    /// Creates buffers of these shapes on `device`, to be filled in pieces.
    pub fn async_transfer(&self, shapes: &[Shape], device: &Device) -> Result<TransferManager> {
        let device_index = self.own(device)?;
        let mut specs = Vec::with_capacity(shapes.len());
        for shape in shapes {
            Shape::checked(shape.dtype, &shape.dims)?;
            specs.push(sys::PJRT_ShapeSpec {
                dims: shape.dims.as_ptr(),
                num_dims: shape.dims.len(),
                element_type: shape.dtype.to_pjrt(),
                ..Default::default()
            });
        }
        let mut args = sys::PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
            client: self.raw(),
            shape_specs: specs.as_mut_ptr(),
            num_shape_specs: specs.len(),
            memory: device.memory(),
            ..Default::default()
        };
        // SAFETY: the specs and their dims live past the call; the memory is the device's.
        unsafe { call!(self.plugin(), PJRT_Client_CreateBuffersForAsyncHostToDevice, &mut args)? };
        let raw = NonNull::new(args.transfer_manager)
            .ok_or_else(|| null_result(self.plugin(), "PJRT_AsyncHostToDeviceTransferManager"))?;
        let progress = Mutex::new(vec![Progress::default(); shapes.len()]);
        Ok(TransferManager {
            client: self.clone(),
            raw,
            shapes: shapes.to_vec(),
            device: device_index,
            progress,
        })
    }
}

impl TransferManager {
    /// Sends the bytes of buffer `index` from `offset` on; `last` says that with these the buffer is whole. `bytes` is given
    /// back when the plugin has read it.
    ///
    /// Every byte must be sent exactly once, and the last piece after all others of the buffer were handed over.
    pub fn transfer_raw<O>(&self, index: usize, bytes: O, offset: usize, last: bool) -> Result<Transfer<O>>
    where
        O: AsRef<[u8]> + Send + 'static,
    {
        // Boxed first: the bytes may lie inside the owner.
        let owner = Box::new(bytes);
        let bytes = (*owner).as_ref();
        let size = self.buffer_size(index)?;
        if offset.checked_add(bytes.len()).is_none_or(|end| end > size) {
            let message =
                format!("{} bytes from {offset} on are not within the {size} of buffer {index}", bytes.len());
            return Err(Error::argument("offset", message));
        }
        // Held over the call, so that no piece can follow the last one into the plugin.
        let mut progress = self.lock();
        if progress[index].complete {
            return Err(Error::argument("index", format!("buffer {index} has its last piece already")));
        }
        let mut args = sys::PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
            transfer_manager: self.raw.as_ptr(),
            buffer_index: index as c_int,
            data: bytes.as_ptr().cast::<c_void>(),
            offset: offset as i64,
            transfer_size: bytes.len() as i64,
            is_last_transfer: last,
            ..Default::default()
        };
        let plugin = self.client.plugin();
        // SAFETY: the range is inside the buffer; the bytes stay in their box until the event is ready.
        let event = unsafe {
            call!(plugin, PJRT_AsyncHostToDeviceTransferManager_TransferData, &mut args)?;
            Event::from_raw(plugin, args.done_with_h2d_transfer)?
        };
        progress[index].complete = last;
        drop(progress);
        Ok(Transfer::boxed(&event, owner))
    }

    /// Takes buffer `index`, whether its bytes are there yet or not; [`Buffer::ready`] tells. Once for each buffer.
    pub fn retrieve(&self, index: usize) -> Result<Buffer> {
        self.shape(index)?;
        let mut progress = self.lock();
        if std::mem::replace(&mut progress[index].retrieved, true) {
            return Err(Error::argument("index", format!("buffer {index} was retrieved already")));
        }
        let mut args = sys::PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
            transfer_manager: self.raw.as_ptr(),
            buffer_index: index as c_int,
            ..Default::default()
        };
        let plugin = self.client.plugin();
        // SAFETY: the index exists and is retrieved for the first time; the plugin hands the buffer over.
        unsafe {
            call!(plugin, PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, &mut args)?;
            Buffer::from_raw(&self.client, args.buffer_out, self.shapes[index].clone(), self.device)
        }
    }

    /// Bytes buffer `index` takes on the device.
    pub fn buffer_size(&self, index: usize) -> Result<usize> {
        self.shape(index)?;
        let mut args = sys::PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
            transfer_manager: self.raw.as_ptr(),
            buffer_index: index as c_int,
            ..Default::default()
        };
        let plugin = self.client.plugin();
        // SAFETY: the index exists.
        unsafe { call!(plugin, PJRT_AsyncHostToDeviceTransferManager_BufferSize, &mut args)? };
        Ok(args.buffer_size)
    }

    fn shape(&self, index: usize) -> Result<&Shape> {
        let missing =
            || Error::argument("index", format!("there is no buffer {index}, only {}", self.shapes.len()));
        self.shapes.get(index).ok_or_else(missing)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Progress>> {
        self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Makes whoever waits for buffer `index` see an error.
    fn fail(&self, index: usize) {
        const CANCELLED: sys::PJRT_Error_Code = 1;
        let message = "the transfer was given up before its last piece";
        let mut args = sys::PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
            transfer_manager: self.raw.as_ptr(),
            buffer_index: index as c_int,
            error_code: CANCELLED,
            error_message: message.as_ptr().cast::<c_char>(),
            error_message_size: message.len(),
            ..Default::default()
        };
        let plugin = self.client.plugin();
        // SAFETY: the index exists and has not had its last piece. Nobody to report an error to.
        let _ = unsafe { call!(plugin, PJRT_AsyncHostToDeviceTransferManager_SetBufferError, &mut args) };
    }
}

impl Drop for TransferManager {
    fn drop(&mut self) {
        let progress = self.lock().clone();
        let given_up = progress.iter().enumerate().filter(|(_, buffer)| !buffer.complete);
        given_up.for_each(|(index, _)| self.fail(index));
        let mut args = sys::PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
            transfer_manager: self.raw.as_ptr(),
            ..Default::default()
        };
        let plugin = self.client.plugin();
        // SAFETY: the manager is live and ours. Nobody to report an error to.
        let _ = unsafe { call!(plugin, PJRT_AsyncHostToDeviceTransferManager_Destroy, &mut args) };
    }
}
