//! Arrays on a device.

use std::ffi::{c_int, c_void};

use crate::layout::{opaque, sized_structs};
use crate::{PJRT_Client, PJRT_Device, PJRT_Event, PJRT_Memory};

opaque! {
    /// An array on a device.
    PJRT_Buffer,
}

/// Element type of a buffer; the numbers are PJRT's, not those of `xla.PrimitiveType`.
pub type PJRT_Buffer_Type = c_int;

/// Who may touch the host bytes, and until when.
pub type PJRT_HostBufferSemantics = c_int;
/// The plugin copies before the call returns.
pub const PJRT_IMMUTABLE_ONLY_DURING_CALL: PJRT_HostBufferSemantics = 0;
/// The bytes stay and do not change until `done_with_host_buffer`.
pub const PJRT_IMMUTABLE_UNTIL_TRANSFER_COMPLETES: PJRT_HostBufferSemantics = 1;
/// The buffer may alias the bytes for its whole life, and only reads them.
pub const PJRT_IMMUTABLE_ZERO_COPY: PJRT_HostBufferSemantics = 2;
/// The buffer may alias the bytes for its whole life, and may write them when donated.
pub const PJRT_MUTABLE_ZERO_COPY: PJRT_HostBufferSemantics = 3;

/// Which member of [`PJRT_Buffer_MemoryLayout_Union`] is set.
pub type PJRT_Buffer_MemoryLayout_Type = c_int;
pub const PJRT_MEMORY_LAYOUT_TILED: PJRT_Buffer_MemoryLayout_Type = 0;
pub const PJRT_MEMORY_LAYOUT_STRIDES: PJRT_Buffer_MemoryLayout_Type = 1;

/// The two ways of giving a layout.
#[repr(C)]
#[derive(Clone, Copy)]
pub union PJRT_Buffer_MemoryLayout_Union {
    pub tiled: PJRT_Buffer_MemoryLayout_Tiled,
    pub strides: PJRT_Buffer_MemoryLayout_Strides,
}

impl std::fmt::Debug for PJRT_Buffer_MemoryLayout_Union {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PJRT_Buffer_MemoryLayout_Union")
    }
}

sized_structs! {
    PJRT_Buffer_MemoryLayout_Tiled {
        /// Dimension numbers, the fastest changing first.
        minor_to_major: *const i64,
        minor_to_major_size: usize,
        tile_dims: *const i64,
        tile_dim_sizes: *const usize,
        num_tiles: usize,
    }
    PJRT_Buffer_MemoryLayout_Strides { byte_strides: *const i64, num_byte_strides: usize }
    PJRT_Buffer_MemoryLayout {
        layout: PJRT_Buffer_MemoryLayout_Union,
        kind: PJRT_Buffer_MemoryLayout_Type,
    }
    PJRT_Client_CreateUninitializedBuffer_Args {
        client: *mut PJRT_Client,
        shape_dims: *const i64,
        shape_num_dims: usize,
        shape_element_type: PJRT_Buffer_Type,
        /// Null for the default.
        shape_layout: *mut PJRT_Buffer_MemoryLayout,
        device: *mut PJRT_Device,
        /// Wins over `device` when not null.
        memory: *mut PJRT_Memory,
        /// Out.
        buffer: *mut PJRT_Buffer,
    }
    PJRT_Client_BufferFromHostBuffer_Args {
        client: *mut PJRT_Client,
        data: *const c_void,
        kind: PJRT_Buffer_Type,
        dims: *const i64,
        num_dims: usize,
        /// Null for dense, major to minor.
        byte_strides: *const i64,
        num_byte_strides: usize,
        host_buffer_semantics: PJRT_HostBufferSemantics,
        device: *mut PJRT_Device,
        /// Wins over `device` when not null.
        memory: *mut PJRT_Memory,
        /// Null for dense, major to minor.
        device_layout: *mut PJRT_Buffer_MemoryLayout,
        /// Out; ready when the plugin no longer touches `data`.
        done_with_host_buffer: *mut PJRT_Event,
        /// Out.
        buffer: *mut PJRT_Buffer,
    }
    PJRT_Buffer_Destroy_Args { buffer: *mut PJRT_Buffer }
    PJRT_Buffer_ElementType_Args {
        buffer: *mut PJRT_Buffer,
        /// Out.
        kind: PJRT_Buffer_Type,
    }
    PJRT_Buffer_Dimensions_Args {
        buffer: *mut PJRT_Buffer,
        /// Out; lives as long as the buffer.
        dims: *const i64,
        /// Out.
        num_dims: usize,
    }
    PJRT_Buffer_OnDeviceSizeInBytes_Args {
        buffer: *mut PJRT_Buffer,
        /// Out; with padding.
        on_device_size_in_bytes: usize,
    }
    PJRT_Buffer_Device_Args {
        buffer: *mut PJRT_Buffer,
        /// Out.
        device: *mut PJRT_Device,
    }
    PJRT_Buffer_Delete_Args { buffer: *mut PJRT_Buffer }
    PJRT_Buffer_IsDeleted_Args {
        buffer: *mut PJRT_Buffer,
        /// Out.
        is_deleted: bool,
    }
    PJRT_Buffer_CopyToDevice_Args {
        buffer: *mut PJRT_Buffer,
        dst_device: *mut PJRT_Device,
        /// Out.
        dst_buffer: *mut PJRT_Buffer,
    }
    PJRT_Buffer_ToHostBuffer_Args {
        src: *mut PJRT_Buffer,
        /// Null for the layout the buffer has on its device.
        host_layout: *mut PJRT_Buffer_MemoryLayout,
        /// Null asks for the size only.
        dst: *mut c_void,
        /// In and out; bytes.
        dst_size: usize,
        /// Out; ready when `dst` is written.
        event: *mut PJRT_Event,
    }
    PJRT_Buffer_CopyRawToHost_Args {
        buffer: *mut PJRT_Buffer,
        dst: *mut c_void,
        /// Bytes into the buffer as it lies on the device.
        offset: i64,
        /// Bytes.
        transfer_size: i64,
        /// Out; ready when `dst` is written.
        event: *mut PJRT_Event,
    }
    PJRT_Buffer_ReadyEvent_Args {
        buffer: *mut PJRT_Buffer,
        /// Out.
        event: *mut PJRT_Event,
    }
    PJRT_Buffer_UnsafePointer_Args {
        buffer: *mut PJRT_Buffer,
        /// Out; device address.
        buffer_pointer: usize,
    }
}
