//! Compiled programs and running them.

use std::ffi::{c_char, c_int, c_void};

use crate::layout::{opaque, sized_structs};
use crate::{
    PJRT_Buffer, PJRT_Buffer_Type, PJRT_Client, PJRT_Device, PJRT_Event, PJRT_NamedValue, PJRT_Program,
};

opaque! {
    /// A compiled program.
    PJRT_Executable,
    /// A compiled program loaded on devices.
    PJRT_LoadedExecutable,
    /// Backs the bytes of a serialized executable.
    PJRT_SerializedExecutable,
}

sized_structs! {
    PJRT_Executable_Destroy_Args { executable: *mut PJRT_Executable }
    PJRT_Executable_Name_Args {
        executable: *mut PJRT_Executable,
        /// Out; lives as long as the executable.
        executable_name: *const c_char,
        /// Out.
        executable_name_size: usize,
    }
    PJRT_Executable_NumOutputs_Args {
        executable: *mut PJRT_Executable,
        /// Out; per device.
        num_outputs: usize,
    }
    PJRT_Executable_GetCostAnalysis_Args {
        executable: *mut PJRT_Executable,
        /// Out.
        num_properties: usize,
        /// Out; lives as long as the executable.
        properties: *const PJRT_NamedValue,
    }
    /// Called twice: with a null `program.code` for the size, then with a buffer of it.
    PJRT_Executable_OptimizedProgram_Args {
        executable: *mut PJRT_Executable,
        program: *mut PJRT_Program,
    }
    PJRT_Executable_Serialize_Args {
        executable: *const PJRT_Executable,
        /// Out; lives as long as `serialized_executable`.
        serialized_bytes: *const c_char,
        /// Out.
        serialized_bytes_size: usize,
        /// Out.
        serialized_executable: *mut PJRT_SerializedExecutable,
        /// Out; frees `serialized_executable`.
        serialized_executable_deleter: Option<unsafe extern "C" fn(*mut PJRT_SerializedExecutable)>,
    }
    PJRT_Executable_DeserializeAndLoad_Args {
        client: *mut PJRT_Client,
        serialized_executable: *const c_char,
        serialized_executable_size: usize,
        /// Out.
        loaded_executable: *mut PJRT_LoadedExecutable,
        /// Null for those it was compiled with.
        overridden_serialized_compile_options: *const c_char,
        overridden_serialized_compile_options_size: usize,
    }
    PJRT_Executable_OutputElementTypes_Args {
        executable: *mut PJRT_Executable,
        /// Out; lives as long as the executable.
        output_types: *mut PJRT_Buffer_Type,
        /// Out.
        num_output_types: usize,
    }
    PJRT_Executable_OutputDimensions_Args {
        executable: *mut PJRT_Executable,
        /// Out.
        num_outputs: usize,
        /// Out; the dimensions of all outputs, one after another.
        dims: *const i64,
        /// Out; rank of each output.
        dim_sizes: *const usize,
    }
    PJRT_Executable_Fingerprint_Args {
        executable: *mut PJRT_Executable,
        /// Out; lives as long as the executable.
        executable_fingerprint: *const c_char,
        /// Out.
        executable_fingerprint_size: usize,
    }
    /// Every field but the first is out; bytes per device.
    PJRT_Executable_GetCompiledMemoryStats_Args {
        executable: *mut PJRT_Executable,
        generated_code_size_in_bytes: i64,
        argument_size_in_bytes: i64,
        output_size_in_bytes: i64,
        /// Counted both as argument and as output.
        alias_size_in_bytes: i64,
        temp_size_in_bytes: i64,
        host_generated_code_size_in_bytes: i64,
        host_argument_size_in_bytes: i64,
        host_output_size_in_bytes: i64,
        host_alias_size_in_bytes: i64,
        host_temp_size_in_bytes: i64,
        peak_memory_in_bytes: i64,
        total_size_in_bytes: i64,
        total_allocation_bytes: i64,
        indefinite_allocations: i64,
        peak_unpadded_heap_bytes: i64,
    }
    PJRT_LoadedExecutable_Destroy_Args { executable: *mut PJRT_LoadedExecutable }
    PJRT_LoadedExecutable_GetExecutable_Args {
        loaded_executable: *mut PJRT_LoadedExecutable,
        /// Out; the caller destroys it.
        executable: *mut PJRT_Executable,
    }
    PJRT_LoadedExecutable_AddressableDevices_Args {
        executable: *mut PJRT_LoadedExecutable,
        /// Out; lives as long as the executable.
        addressable_devices: *const *mut PJRT_Device,
        /// Out.
        num_addressable_devices: usize,
    }
    PJRT_ExecuteOptions {
        send_callbacks: *mut c_void,
        recv_callbacks: *mut c_void,
        num_send_ops: usize,
        num_recv_ops: usize,
        /// Non-zero identifies one launch over several hosts.
        launch_id: c_int,
        /// Arguments that must survive although the program donates them.
        non_donatable_input_indices: *const i64,
        num_non_donatable_input_indices: usize,
        context: *mut c_void,
        call_location: *const c_char,
        num_tasks: usize,
        task_ids: *mut c_int,
        incarnation_ids: *mut i64,
        multi_slice_config: *mut c_void,
        use_major_to_minor_data_layout_for_callbacks: bool,
        hlo_output_callbacks: *mut c_void,
        num_hlo_output_callbacks: usize,
    }
    PJRT_LoadedExecutable_Execute_Args {
        executable: *mut PJRT_LoadedExecutable,
        options: *mut PJRT_ExecuteOptions,
        /// `[num_devices][num_args]`.
        argument_lists: *const *const *mut PJRT_Buffer,
        num_devices: usize,
        num_args: usize,
        /// `[num_devices][num_outputs]`; the caller allocates the lists and destroys the buffers.
        output_lists: *const *mut *mut PJRT_Buffer,
        /// Null, or `[num_devices]`; filled only on success.
        device_complete_events: *mut *mut PJRT_Event,
        /// Null for the devices chosen when compiling.
        execute_device: *mut PJRT_Device,
    }
}
