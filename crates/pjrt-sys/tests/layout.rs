//! Sizes as C counts them (`PJRT_*_STRUCT_SIZE`, API 0.114; the fields of older versions are a prefix).

use pjrt_sys as sys;

macro_rules! sizes {
    ($($name:ident: $size:literal,)*) => {
        #[test]
        fn structs_end_where_c_says() {
            $(assert_eq!(sys::$name::STRUCT_SIZE, $size, stringify!($name));)*
            $(assert_eq!(sys::$name::new().struct_size, $size, stringify!($name));)*
        }
    };
}

sizes! {
    PJRT_Api_Version: 24,
    PJRT_Error_Destroy_Args: 24,
    PJRT_Error_Message_Args: 40,
    PJRT_Error_GetCode_Args: 28,
    PJRT_NamedValue: 56,
    PJRT_Plugin_Initialize_Args: 16,
    PJRT_Event_Destroy_Args: 24,
    PJRT_Event_IsReady_Args: 25,
    PJRT_Event_Error_Args: 24,
    PJRT_Event_Await_Args: 24,
    PJRT_Event_OnReady_Args: 40,
    PJRT_Client_Create_Args: 88,
    PJRT_Client_Destroy_Args: 24,
    PJRT_Client_PlatformName_Args: 40,
    PJRT_Client_PlatformVersion_Args: 40,
    PJRT_Client_AddressableDevices_Args: 40,
    PJRT_Program: 48,
    PJRT_Client_Compile_Args: 56,
    PJRT_Device_GetDescription_Args: 32,
    PJRT_Device_LocalHardwareId_Args: 28,
    PJRT_Device_DefaultMemory_Args: 32,
    PJRT_Device_MemoryStats_Args: 201,
    PJRT_DeviceDescription_Id_Args: 28,
    PJRT_DeviceDescription_Kind_Args: 40,
    PJRT_DeviceDescription_ToString_Args: 40,
    PJRT_Buffer_MemoryLayout_Tiled: 56,
    PJRT_Buffer_MemoryLayout_Strides: 32,
    PJRT_Buffer_MemoryLayout: 76,
    PJRT_Client_CreateUninitializedBuffer_Args: 80,
    PJRT_Client_BufferFromHostBuffer_Args: 120,
    PJRT_Buffer_Destroy_Args: 24,
    PJRT_Buffer_ElementType_Args: 28,
    PJRT_Buffer_Dimensions_Args: 40,
    PJRT_Buffer_OnDeviceSizeInBytes_Args: 32,
    PJRT_Buffer_Device_Args: 32,
    PJRT_Buffer_Delete_Args: 24,
    PJRT_Buffer_IsDeleted_Args: 25,
    PJRT_Buffer_CopyToDevice_Args: 40,
    PJRT_Buffer_ToHostBuffer_Args: 56,
    PJRT_Buffer_CopyRawToHost_Args: 56,
    PJRT_Buffer_ReadyEvent_Args: 32,
    PJRT_Buffer_UnsafePointer_Args: 32,
    PJRT_Executable_Destroy_Args: 24,
    PJRT_Executable_Name_Args: 40,
    PJRT_Executable_NumOutputs_Args: 32,
    PJRT_Executable_GetCostAnalysis_Args: 40,
    PJRT_Executable_OptimizedProgram_Args: 32,
    PJRT_Executable_Serialize_Args: 56,
    PJRT_Executable_DeserializeAndLoad_Args: 64,
    PJRT_Executable_OutputElementTypes_Args: 40,
    PJRT_Executable_OutputDimensions_Args: 48,
    PJRT_Executable_Fingerprint_Args: 40,
    PJRT_Executable_GetCompiledMemoryStats_Args: 144,
    PJRT_LoadedExecutable_Destroy_Args: 24,
    PJRT_LoadedExecutable_GetExecutable_Args: 32,
    PJRT_LoadedExecutable_AddressableDevices_Args: 40,
    PJRT_ExecuteOptions: 144,
    PJRT_LoadedExecutable_Execute_Args: 80,
    PJRT_TopologyDescription_Create_Args: 56,
    PJRT_TopologyDescription_Destroy_Args: 24,
    PJRT_TopologyDescription_PlatformName_Args: 40,
    PJRT_TopologyDescription_PlatformVersion_Args: 40,
    PJRT_TopologyDescription_GetDeviceDescriptions_Args: 40,
    PJRT_TopologyDescription_Attributes_Args: 40,
    PJRT_Compile_Args: 64,
    PJRT_ShapeSpec: 36,
    PJRT_Client_CreateBuffersForAsyncHostToDevice_Args: 72,
    PJRT_AsyncHostToDeviceTransferManager_Destroy_Args: 24,
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args: 72,
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args: 40,
    PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args: 40,
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args: 48,
}

#[test]
fn the_table_is_in_order() {
    // struct_size, extension_start and the version take 40 bytes, then one pointer a slot.
    let slot = |offset: usize| (offset - 40) / 8;
    use std::mem::offset_of;
    assert_eq!(slot(offset_of!(sys::PJRT_Api, PJRT_Error_Destroy)), 0);
    assert_eq!(slot(offset_of!(sys::PJRT_Api, PJRT_Client_BufferFromHostBuffer)), 22);
    assert_eq!(slot(offset_of!(sys::PJRT_Api, PJRT_LoadedExecutable_Execute)), 55);
    assert_eq!(slot(offset_of!(sys::PJRT_Api, PJRT_Compile)), 89);
    assert_eq!(slot(offset_of!(sys::PJRT_Api, PJRT_Buffer_CopyRawToHost)), 100);
    assert_eq!(size_of::<sys::PJRT_Api>(), 40 + 8 * 118);
}
