//! Clients, devices and programs handed to the compiler.

use std::ffi::{c_char, c_int, c_void};

use crate::layout::{opaque, sized_structs};
use crate::{PJRT_LoadedExecutable, PJRT_NamedValue};

opaque! {
    PJRT_Client,
    /// Owned by its client.
    PJRT_Device,
    /// Owned by its device.
    PJRT_DeviceDescription,
    /// A memory space, owned by its client.
    PJRT_Memory,
}

sized_structs! {
    PJRT_Client_Create_Args {
        create_options: *const PJRT_NamedValue,
        num_options: usize,
        /// Key-value store of a multi-host launch; null here, as the next three.
        kv_get_callback: *mut c_void,
        kv_get_user_arg: *mut c_void,
        kv_put_callback: *mut c_void,
        kv_put_user_arg: *mut c_void,
        /// Out.
        client: *mut PJRT_Client,
        kv_try_get_callback: *mut c_void,
        kv_try_get_user_arg: *mut c_void,
    }
    PJRT_Client_Destroy_Args { client: *mut PJRT_Client }
    PJRT_Client_PlatformName_Args {
        client: *mut PJRT_Client,
        /// Out; lives as long as the client.
        platform_name: *const c_char,
        /// Out.
        platform_name_size: usize,
    }
    PJRT_Client_PlatformVersion_Args {
        client: *mut PJRT_Client,
        /// Out; lives as long as the client.
        platform_version: *const c_char,
        /// Out.
        platform_version_size: usize,
    }
    PJRT_Client_AddressableDevices_Args {
        client: *mut PJRT_Client,
        /// Out; the array lives as long as the client.
        addressable_devices: *const *mut PJRT_Device,
        /// Out.
        num_addressable_devices: usize,
    }
    /// A program and its format: `mlir` (text or bytecode), `hlo` or `hlo_with_config`.
    PJRT_Program {
        /// In for compiling, out buffer for `PJRT_Executable_OptimizedProgram`.
        code: *mut c_char,
        code_size: usize,
        format: *const c_char,
        format_size: usize,
    }
    PJRT_Client_Compile_Args {
        client: *mut PJRT_Client,
        program: *const PJRT_Program,
        /// A serialized `xla.CompileOptionsProto`.
        compile_options: *const c_char,
        compile_options_size: usize,
        /// Out.
        executable: *mut PJRT_LoadedExecutable,
    }
    PJRT_Device_GetDescription_Args {
        device: *mut PJRT_Device,
        /// Out.
        device_description: *mut PJRT_DeviceDescription,
    }
    PJRT_Device_LocalHardwareId_Args {
        device: *mut PJRT_Device,
        /// Out; -1 where undefined.
        local_hardware_id: c_int,
    }
    PJRT_Device_DefaultMemory_Args {
        device: *mut PJRT_Device,
        /// Out.
        memory: *mut PJRT_Memory,
    }
    /// Every field but the first two is out; each `_is_set` says whether the one before it has a value. Sizes in bytes.
    PJRT_Device_MemoryStats_Args {
        device: *mut PJRT_Device,
        bytes_in_use: i64,
        peak_bytes_in_use: i64,
        peak_bytes_in_use_is_set: bool,
        num_allocs: i64,
        num_allocs_is_set: bool,
        largest_alloc_size: i64,
        largest_alloc_size_is_set: bool,
        bytes_limit: i64,
        bytes_limit_is_set: bool,
        bytes_reserved: i64,
        bytes_reserved_is_set: bool,
        peak_bytes_reserved: i64,
        peak_bytes_reserved_is_set: bool,
        bytes_reservable_limit: i64,
        bytes_reservable_limit_is_set: bool,
        largest_free_block_bytes: i64,
        largest_free_block_bytes_is_set: bool,
        pool_bytes: i64,
        pool_bytes_is_set: bool,
        peak_pool_bytes: i64,
        peak_pool_bytes_is_set: bool,
        peak_allocated_bytes: i64,
        peak_allocated_bytes_is_set: bool,
    }
    PJRT_DeviceDescription_Id_Args {
        device_description: *mut PJRT_DeviceDescription,
        /// Out; unique among all devices of the client.
        id: c_int,
    }
    PJRT_DeviceDescription_Kind_Args {
        device_description: *mut PJRT_DeviceDescription,
        /// Out; lives as long as the description.
        device_kind: *const c_char,
        /// Out.
        device_kind_size: usize,
    }
    PJRT_DeviceDescription_ToString_Args {
        device_description: *mut PJRT_DeviceDescription,
        /// Out; lives as long as the description.
        to_string: *const c_char,
        /// Out.
        to_string_size: usize,
    }
}
