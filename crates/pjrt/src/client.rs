//! A client: one process's view of the devices a plugin drives.

use std::ffi::c_char;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use pjrt_sys as sys;

use crate::device::Device;
use crate::event::null_result;
use crate::executable::Executable;
use crate::options::CompileOptions;
use crate::plugin::{Plugin, call, lent, text_from};
use crate::{Error, Result};

/// The devices of a plugin. Cloning is cheap; buffers and executables keep their client alive.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    plugin: Arc<Plugin>,
    raw: NonNull<sys::PJRT_Client>,
    platform_name: String,
    platform_version: String,
    devices: Vec<Device>,
}

// SAFETY: PJRT clients are thread-safe; the rest is read-only.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Value of a client or compile option.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// Text.
    String(String),
    /// A whole number.
    Int64(i64),
    /// Whole numbers; not for compile options.
    Int64List(Vec<i64>),
    /// A number.
    Float(f32),
    /// A switch.
    Bool(bool),
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("platform", &self.inner.platform_name)
            .field("devices", &self.inner.devices)
            .finish()
    }
}

impl Client {
    /// Makes a client. The CPU plugin knows the options `cpu_device_count` (Int64) and `asynchronous` (Bool); a name the plugin
    /// does not know is an error. The CPU plugin reads `PJRT_NPROC`, the size of its thread pool, here.
    pub fn new(plugin: &Arc<Plugin>, options: &[(&str, OptionValue)]) -> Result<Self> {
        let named: Vec<_> = options.iter().map(|(name, value)| named_value(name, value)).collect();
        let mut create = sys::PJRT_Client_Create_Args {
            create_options: named.as_ptr(),
            num_options: named.len(),
            ..Default::default()
        };
        // SAFETY: the options and what they point to live past the call.
        unsafe { call!(plugin, PJRT_Client_Create, &mut create)? };
        let raw = NonNull::new(create.client).ok_or_else(|| null_result(plugin, "PJRT_Client"))?;
        // From here on dropping `inner` destroys the client, also on an early return.
        let mut inner = Inner {
            plugin: Arc::clone(plugin),
            raw,
            platform_name: String::new(),
            platform_version: String::new(),
            devices: Vec::new(),
        };
        let client = raw.as_ptr();
        let mut name = sys::PJRT_Client_PlatformName_Args { client, ..Default::default() };
        let mut version = sys::PJRT_Client_PlatformVersion_Args { client, ..Default::default() };
        let mut devices = sys::PJRT_Client_AddressableDevices_Args { client, ..Default::default() };
        // SAFETY: the client is live and lends its texts and its device list as long as it lives.
        unsafe {
            call!(plugin, PJRT_Client_PlatformName, &mut name)?;
            call!(plugin, PJRT_Client_PlatformVersion, &mut version)?;
            call!(plugin, PJRT_Client_AddressableDevices, &mut devices)?;
            inner.platform_name = text_from(name.platform_name, name.platform_name_size);
            inner.platform_version = text_from(version.platform_version, version.platform_version_size);
            for device in lent(devices.addressable_devices, devices.num_addressable_devices) {
                inner.devices.push(Device::new(plugin, *device)?);
            }
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The plugin at `path` with its default options: the short way for tests and one-device programs.
    pub fn open(path: &Path) -> Result<Self> {
        Self::new(&Plugin::load(path)?, &[])
    }

    /// The plugin that drives it.
    pub fn plugin(&self) -> &Arc<Plugin> {
        &self.inner.plugin
    }

    /// `cpu`, `tpu`, `cuda`.
    pub fn platform_name(&self) -> &str {
        &self.inner.platform_name
    }

    /// Version text of the runtime.
    pub fn platform_version(&self) -> &str {
        &self.inner.platform_version
    }

    /// The devices this process can use, in the plugin's order.
    pub fn devices(&self) -> &[Device] {
        &self.inner.devices
    }

    /// Compiles a StableHLO module, as text or as portable bytecode.
    ///
    /// The options say how many devices run it and which. Takes from tens of milliseconds to minutes; see
    /// [`ExecutableCache`](crate::cache::ExecutableCache).
    pub fn compile(&self, program: impl AsRef<[u8]>, options: &CompileOptions) -> Result<Executable> {
        let code = program.as_ref();
        let format = "mlir";
        let proto = options.encode(self)?;
        let program = sys::PJRT_Program {
            // The plugin only reads a program it compiles, whatever the C type says.
            code: code.as_ptr().cast_mut().cast::<c_char>(),
            code_size: code.len(),
            format: format.as_ptr().cast::<c_char>(),
            format_size: format.len(),
            ..Default::default()
        };
        let mut args = sys::PJRT_Client_Compile_Args {
            client: self.raw(),
            program: &program,
            compile_options: proto.as_ptr().cast::<c_char>(),
            compile_options_size: proto.len(),
            ..Default::default()
        };
        // SAFETY: program and options live past the call.
        unsafe { call!(self.plugin(), PJRT_Client_Compile, &mut args) }.map_err(Error::of_parser)?;
        // SAFETY: the plugin handed the executable over.
        unsafe { Executable::from_raw(self, args.executable) }
    }

    /// Loads what [`Executable::serialize`] wrote.
    ///
    /// A plugin accepts bytes of another version or another CPU without complaint and then computes whatever it computes: only
    /// load what this very plugin wrote on this kind of machine. [`ExecutableCache`](crate::cache::ExecutableCache) sees to it.
    pub fn load_executable(&self, serialized: &[u8]) -> Result<Executable> {
        let mut args = sys::PJRT_Executable_DeserializeAndLoad_Args {
            client: self.raw(),
            serialized_executable: serialized.as_ptr().cast::<c_char>(),
            serialized_executable_size: serialized.len(),
            ..Default::default()
        };
        // SAFETY: the bytes live past the call.
        unsafe { call!(self.plugin(), PJRT_Executable_DeserializeAndLoad, &mut args)? };
        // SAFETY: the plugin handed the executable over.
        unsafe { Executable::from_raw(self, args.loaded_executable) }
    }

    pub(crate) fn raw(&self) -> *mut sys::PJRT_Client {
        self.inner.raw.as_ptr()
    }

    /// The device's position, once it is known to be one of this client's.
    pub(crate) fn own(&self, device: &Device) -> Result<usize> {
        let foreign =
            || Error::argument("device", format!("{} belongs to another client", device.description()));
        self.position(device.raw()).ok_or_else(foreign)
    }

    pub(crate) fn position(&self, raw: *mut sys::PJRT_Device) -> Option<usize> {
        self.inner.devices.iter().position(|device| device.raw() == raw)
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut args = sys::PJRT_Client_Destroy_Args { client: self.raw.as_ptr(), ..Default::default() };
        // SAFETY: every buffer and executable holds the client, so none is left. Nobody to report an error to.
        let _ = unsafe { call!(self.plugin, PJRT_Client_Destroy, &mut args) };
    }
}

/// The C form of an option; it borrows name and value.
fn named_value(name: &str, value: &OptionValue) -> sys::PJRT_NamedValue {
    type Union = sys::PJRT_NamedValue_Union;
    let (kind, value, value_size) = match value {
        OptionValue::String(text) => {
            (sys::PJRT_NAMED_VALUE_STRING, Union { string_value: text.as_ptr().cast::<c_char>() }, text.len())
        }
        OptionValue::Int64(number) => (sys::PJRT_NAMED_VALUE_INT64, Union { int64_value: *number }, 1),
        OptionValue::Int64List(numbers) => {
            (sys::PJRT_NAMED_VALUE_INT64_LIST, Union { int64_array_value: numbers.as_ptr() }, numbers.len())
        }
        OptionValue::Float(number) => (sys::PJRT_NAMED_VALUE_FLOAT, Union { float_value: *number }, 1),
        OptionValue::Bool(switch) => (sys::PJRT_NAMED_VALUE_BOOL, Union { bool_value: *switch }, 1),
    };
    sys::PJRT_NamedValue {
        name: name.as_ptr().cast::<c_char>(),
        name_size: name.len(),
        kind,
        value,
        value_size,
        ..Default::default()
    }
}
