//! Compiling for machines that are not there.

mod slice;

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::Arc;

use pjrt_sys as sys;

pub use slice::{TpuChip, TpuSlice};

use crate::client::OptionValue;
use crate::compiled::Compiled;
use crate::event::null_result;
use crate::options::CompileOptions;
use crate::plugin::{Plugin, call, lent, text_from};
use crate::{Error, Result};

/// The devices of a kind of machine and how they are connected, as a plugin knows them without being on such a machine.
pub struct Topology {
    plugin: Arc<Plugin>,
    raw: NonNull<sys::PJRT_TopologyDescription>,
    name: String,
    platform_version: String,
    attributes: BTreeMap<String, OptionValue>,
    device_kind: String,
    device_ids: Vec<i32>,
}

// SAFETY: a topology is immutable once made.
unsafe impl Send for Topology {}
// SAFETY: as above.
unsafe impl Sync for Topology {}

impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topology").field("name", &self.name).field("devices", &self.device_ids.len()).finish()
    }
}

impl Topology {
    /// A slice of TPUs; `plugin` is a libtpu.
    pub fn tpu(plugin: &Arc<Plugin>, slice: TpuSlice) -> Result<Self> {
        Self::named(plugin, &slice.to_string())
    }

    /// By a name the plugin understands. libtpu takes shapes that nobody sells; [`TpuSlice`] does not.
    pub fn named(plugin: &Arc<Plugin>, name: &str) -> Result<Self> {
        let mut create = sys::PJRT_TopologyDescription_Create_Args {
            topology_name: name.as_ptr().cast::<c_char>(),
            topology_name_size: name.len(),
            ..Default::default()
        };
        // SAFETY: the name lives past the call.
        unsafe { call!(plugin, PJRT_TopologyDescription_Create, &mut create)? };
        let raw =
            NonNull::new(create.topology).ok_or_else(|| null_result(plugin, "PJRT_TopologyDescription"))?;
        // From here on dropping it destroys the description, also on an early return.
        let mut topology = Self {
            plugin: Arc::clone(plugin),
            raw,
            name: name.to_owned(),
            platform_version: String::new(),
            attributes: BTreeMap::new(),
            device_kind: String::new(),
            device_ids: Vec::new(),
        };
        topology.read()?;
        Ok(topology)
    }

    /// The name it was made by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Version text of the compiler.
    pub fn platform_version(&self) -> &str {
        &self.platform_version
    }

    /// The kind of chip, such as `TPU v6 lite`.
    pub fn device_kind(&self) -> &str {
        &self.device_kind
    }

    /// Ids of all devices, in the plugin's order. A chip may hold two.
    pub fn device_ids(&self) -> &[i32] {
        &self.device_ids
    }

    /// What the plugin tells about the machine, by name.
    pub fn attributes(&self) -> &BTreeMap<String, OptionValue> {
        &self.attributes
    }

    /// Bytes a program may use on each device, where the plugin says.
    pub fn memory_limit(&self) -> Option<u64> {
        match self.attributes.get("device_memory_bytes_limit") {
            Some(OptionValue::Int64(bytes)) => u64::try_from(*bytes).ok(),
            _ => None,
        }
    }

    /// Options for one program split by its shardings over the first `count` devices.
    pub fn sharded_over(&self, count: usize) -> CompileOptions {
        CompileOptions::sharded_over_ids(self.device_ids.iter().copied().take(count))
    }

    /// Options for one program that runs on each of the first `count` devices, written as one of them sees it.
    pub fn replicated_over(&self, count: usize) -> CompileOptions {
        CompileOptions::replicated_over_ids(self.device_ids.iter().copied().take(count))
    }

    /// Compiles a StableHLO module, text or portable bytecode, for these devices.
    ///
    /// A program too large for them is [`Error::TooLarge`]. The compiler aborts the process on some programs it does not
    /// expect: run this in a child process. Without a device assignment the options name the first devices, because libtpu
    /// aborts on some sharded programs that have none.
    pub fn compile(&self, program: impl AsRef<[u8]>, options: &CompileOptions) -> Result<Compiled> {
        let code = program.as_ref();
        let format = "mlir";
        let proto = self.assigned(options).encode_for("the topology", &self.device_ids)?;
        let program = sys::PJRT_Program {
            // The plugin only reads a program it compiles, whatever the C type says.
            code: code.as_ptr().cast_mut().cast::<c_char>(),
            code_size: code.len(),
            format: format.as_ptr().cast::<c_char>(),
            format_size: format.len(),
            ..Default::default()
        };
        let mut args = sys::PJRT_Compile_Args {
            topology: self.raw.as_ptr(),
            program: &program,
            compile_options: proto.as_ptr().cast::<c_char>(),
            compile_options_size: proto.len(),
            ..Default::default()
        };
        // SAFETY: topology, program and options live past the call; a null client is allowed.
        unsafe { call!(self.plugin, PJRT_Compile, &mut args) }.map_err(Error::of_compiler)?;
        // SAFETY: the plugin handed the executable over.
        unsafe { Compiled::from_raw(&self.plugin, args.executable) }
    }

    /// The options with a device assignment.
    fn assigned(&self, options: &CompileOptions) -> CompileOptions {
        let mut options = options.clone();
        options.device_assignment.get_or_insert_with(|| {
            let mut ids = self.device_ids.iter().copied();
            (0..options.num_replicas).map(|_| ids.by_ref().take(options.num_partitions).collect()).collect()
        });
        options
    }

    fn read(&mut self) -> Result<()> {
        let (plugin, topology) = (Arc::clone(&self.plugin), self.raw.as_ptr());
        let mut version =
            sys::PJRT_TopologyDescription_PlatformVersion_Args { topology, ..Default::default() };
        let mut attributes = sys::PJRT_TopologyDescription_Attributes_Args { topology, ..Default::default() };
        let mut devices =
            sys::PJRT_TopologyDescription_GetDeviceDescriptions_Args { topology, ..Default::default() };
        // SAFETY: the topology is live and lends texts, attributes and descriptions as long as it lives.
        unsafe {
            call!(plugin, PJRT_TopologyDescription_PlatformVersion, &mut version)?;
            call!(plugin, PJRT_TopologyDescription_Attributes, &mut attributes)?;
            call!(plugin, PJRT_TopologyDescription_GetDeviceDescriptions, &mut devices)?;
            self.platform_version = text_from(version.platform_version, version.platform_version_size);
            let attributes = lent(attributes.attributes, attributes.num_attributes);
            self.attributes = attributes.iter().filter_map(|attribute| owned(attribute)).collect();
            for &device_description in lent(devices.descriptions, devices.num_descriptions) {
                let mut id = sys::PJRT_DeviceDescription_Id_Args { device_description, ..Default::default() };
                let mut kind =
                    sys::PJRT_DeviceDescription_Kind_Args { device_description, ..Default::default() };
                call!(plugin, PJRT_DeviceDescription_Id, &mut id)?;
                call!(plugin, PJRT_DeviceDescription_Kind, &mut kind)?;
                self.device_ids.push(id.id);
                self.device_kind = text_from(kind.device_kind, kind.device_kind_size);
            }
        }
        Ok(())
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        let mut args =
            sys::PJRT_TopologyDescription_Destroy_Args { topology: self.raw.as_ptr(), ..Default::default() };
        // SAFETY: the description is live and ours. Nobody to report an error to.
        let _ = unsafe { call!(self.plugin, PJRT_TopologyDescription_Destroy, &mut args) };
    }
}

/// Copies an attribute the plugin lends; none where its type is unknown.
///
/// # Safety
/// `named` must be live with what it points to.
unsafe fn owned(named: &sys::PJRT_NamedValue) -> Option<(String, OptionValue)> {
    // SAFETY: passed on to the caller; the union's member is the one `kind` names.
    unsafe {
        let value = match named.kind {
            sys::PJRT_NAMED_VALUE_STRING => {
                OptionValue::String(text_from(named.value.string_value, named.value_size))
            }
            sys::PJRT_NAMED_VALUE_INT64 => OptionValue::Int64(named.value.int64_value),
            sys::PJRT_NAMED_VALUE_INT64_LIST => {
                OptionValue::Int64List(lent(named.value.int64_array_value, named.value_size).to_vec())
            }
            sys::PJRT_NAMED_VALUE_FLOAT => OptionValue::Float(named.value.float_value),
            sys::PJRT_NAMED_VALUE_BOOL => OptionValue::Bool(named.value.bool_value),
            _ => return None,
        };
        Some((text_from(named.name, named.name_size), value))
    }
}
