//! Machines that need not be there, and compiling for them.

use std::ffi::c_char;

use crate::layout::{opaque, sized_structs};
use crate::{PJRT_Client, PJRT_DeviceDescription, PJRT_Executable, PJRT_NamedValue, PJRT_Program};

opaque! {
    /// The devices of a kind of machine and how they are connected.
    PJRT_TopologyDescription,
}

sized_structs! {
    PJRT_TopologyDescription_Create_Args {
        topology_name: *const c_char,
        topology_name_size: usize,
        create_options: *const PJRT_NamedValue,
        num_options: usize,
        /// Out; the caller destroys it.
        topology: *mut PJRT_TopologyDescription,
    }
    PJRT_TopologyDescription_Destroy_Args { topology: *mut PJRT_TopologyDescription }
    PJRT_TopologyDescription_PlatformName_Args {
        topology: *mut PJRT_TopologyDescription,
        /// Out; lives as long as the topology.
        platform_name: *const c_char,
        /// Out.
        platform_name_size: usize,
    }
    PJRT_TopologyDescription_PlatformVersion_Args {
        topology: *mut PJRT_TopologyDescription,
        /// Out; lives as long as the topology.
        platform_version: *const c_char,
        /// Out.
        platform_version_size: usize,
    }
    PJRT_TopologyDescription_GetDeviceDescriptions_Args {
        topology: *mut PJRT_TopologyDescription,
        /// Out; lives as long as the topology.
        descriptions: *const *mut PJRT_DeviceDescription,
        /// Out.
        num_descriptions: usize,
    }
    PJRT_TopologyDescription_Attributes_Args {
        topology: *mut PJRT_TopologyDescription,
        /// Out; lives as long as the topology.
        attributes: *const PJRT_NamedValue,
        /// Out.
        num_attributes: usize,
    }
    PJRT_Compile_Args {
        topology: *const PJRT_TopologyDescription,
        program: *const PJRT_Program,
        /// A serialized `xla.CompileOptionsProto`.
        compile_options: *const c_char,
        compile_options_size: usize,
        /// Null, or a client whose devices the compiler may look at.
        client: *mut PJRT_Client,
        /// Out; the caller destroys it.
        executable: *mut PJRT_Executable,
    }
}
