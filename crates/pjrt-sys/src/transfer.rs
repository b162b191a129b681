//! Uploads in pieces: buffers first, bytes later.

use std::ffi::{c_char, c_int, c_void};

use crate::layout::{opaque, sized_structs};
use crate::{
    PJRT_Buffer, PJRT_Buffer_MemoryLayout, PJRT_Buffer_Type, PJRT_Client, PJRT_Error_Code, PJRT_Event,
    PJRT_Memory,
};

opaque! {
    /// Fills buffers that were created without their bytes.
    PJRT_AsyncHostToDeviceTransferManager,
}

sized_structs! {
    PJRT_ShapeSpec {
        dims: *const i64,
        num_dims: usize,
        element_type: PJRT_Buffer_Type,
    }
    PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
        client: *mut PJRT_Client,
        shape_specs: *mut PJRT_ShapeSpec,
        num_shape_specs: usize,
        /// Null for the default.
        device_layouts: *mut *mut PJRT_Buffer_MemoryLayout,
        num_device_layouts: usize,
        memory: *mut PJRT_Memory,
        /// Out.
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    }
    PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
    }
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        data: *const c_void,
        /// Bytes into the buffer.
        offset: i64,
        /// Bytes.
        transfer_size: i64,
        is_last_transfer: bool,
        /// Out; ready when `data` is no longer read.
        done_with_h2d_transfer: *mut PJRT_Event,
    }
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        /// Out.
        buffer_out: *mut PJRT_Buffer,
    }
    PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        /// Out; bytes.
        buffer_size: usize,
    }
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
        transfer_manager: *mut PJRT_AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        error_code: PJRT_Error_Code,
        error_message: *const c_char,
        error_message_size: usize,
    }
}
