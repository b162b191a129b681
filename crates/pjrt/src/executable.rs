//! A compiled program and what is known about it.

use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::Arc;

use pjrt_sys as sys;

use crate::client::Client;
use crate::device::Device;
use crate::dtype::{DType, Shape};
use crate::event::null_result;
use crate::plugin::{call, lent, text_from};
use crate::signature::Signature;
use crate::{Error, Result};

/// A program compiled for the devices of a client. Cloning is cheap; any thread may execute it, several at once.
#[derive(Clone)]
pub struct Executable {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    loaded: NonNull<sys::PJRT_LoadedExecutable>,
    compiled: NonNull<sys::PJRT_Executable>,
    name: String,
    outputs: Vec<Arc<Shape>>,
    signature: Option<Signature>,
    /// Positions among the client's devices, in the order of execution.
    devices: Vec<usize>,
}

// SAFETY: PJRT executables are thread-safe; the rest is read-only.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Memory a program needs on each device, in bytes, as the compiler planned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledMemory {
    /// Machine code.
    pub generated_code: u64,
    /// Arguments.
    pub arguments: u64,
    /// Outputs.
    pub outputs: u64,
    /// Counted both in `arguments` and in `outputs`: donated.
    pub aliased: u64,
    /// Scratch during an execution.
    pub temporaries: u64,
    /// Most that is in use at once, where the plugin says.
    pub peak: Option<u64>,
}

/// What one execution costs, as the compiler estimates it. Loops count once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes_accessed: f64,
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executable")
            .field("name", &self.inner.name)
            .field("outputs", &self.inner.outputs)
            .field("devices", &self.inner.devices.len())
            .finish()
    }
}

impl Executable {
    /// Takes over a loaded executable and reads what it takes and returns.
    ///
    /// # Safety
    /// `loaded` must be null or a live executable of `client` that nothing else destroys.
    pub(crate) unsafe fn from_raw(client: &Client, loaded: *mut sys::PJRT_LoadedExecutable) -> Result<Self> {
        let plugin = client.plugin();
        let loaded = NonNull::new(loaded).ok_or_else(|| null_result(plugin, "PJRT_LoadedExecutable"))?;
        let mut get = sys::PJRT_LoadedExecutable_GetExecutable_Args {
            loaded_executable: loaded.as_ptr(),
            ..Default::default()
        };
        // SAFETY: the loaded executable is live; the plugin hands a second handle over.
        let got = unsafe { call!(plugin, PJRT_LoadedExecutable_GetExecutable, &mut get) };
        let missing = || null_result(plugin, "PJRT_Executable");
        let compiled = got.and_then(|()| NonNull::new(get.executable).ok_or_else(missing));
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(error) => {
                destroy_loaded(client, loaded);
                return Err(error);
            }
        };
        let mut inner = Inner {
            client: client.clone(),
            loaded,
            compiled,
            name: String::new(),
            outputs: Vec::new(),
            signature: None,
            devices: Vec::new(),
        };
        inner.read()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of the module.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The client it was compiled for.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Number of outputs on each device.
    pub fn num_outputs(&self) -> usize {
        self.inner.outputs.len()
    }

    /// Shape of each output on each device.
    pub fn output_shapes(&self) -> &[Arc<Shape>] {
        &self.inner.outputs
    }

    /// Parameters, results and donations, where the plugin shows its optimised program.
    pub fn signature(&self) -> Option<&Signature> {
        self.inner.signature.as_ref()
    }

    /// The devices it runs on, in the order in which [`execute_sharded`](Self::execute_sharded) takes arguments.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.device_indices().iter().map(|index| &self.inner.client.devices()[*index])
    }

    pub(crate) fn device_indices(&self) -> &[usize] {
        &self.inner.devices
    }

    pub(crate) fn loaded(&self) -> *mut sys::PJRT_LoadedExecutable {
        self.inner.loaded.as_ptr()
    }

    /// A text that is the same for the same compiled program.
    pub fn fingerprint(&self) -> Result<String> {
        let mut args =
            sys::PJRT_Executable_Fingerprint_Args { executable: self.compiled(), ..Default::default() };
        let plugin = self.inner.client.plugin();
        // SAFETY: the executable is live and lends its fingerprint.
        unsafe {
            call!(plugin, PJRT_Executable_Fingerprint, &mut args)?;
            Ok(text_from(args.executable_fingerprint, args.executable_fingerprint_size))
        }
    }

    /// The bytes [`Client::load_executable`] takes, on the same plugin and the same kind of machine.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args =
            sys::PJRT_Executable_Serialize_Args { executable: self.compiled(), ..Default::default() };
        let plugin = self.inner.client.plugin();
        // SAFETY: the executable is live; the bytes live until the deleter is called, which happens once.
        unsafe {
            call!(plugin, PJRT_Executable_Serialize, &mut args)?;
            let bytes = lent(args.serialized_bytes.cast::<u8>(), args.serialized_bytes_size).to_vec();
            if let Some(delete) = args.serialized_executable_deleter {
                delete(args.serialized_executable);
            }
            Ok(bytes)
        }
    }

    /// The compiler's memory plan, where the plugin tells it.
    pub fn memory(&self) -> Option<CompiledMemory> {
        let mut args = sys::PJRT_Executable_GetCompiledMemoryStats_Args {
            executable: self.compiled(),
            ..Default::default()
        };
        let plugin = self.inner.client.plugin();
        // SAFETY: the executable is live.
        unsafe { call!(plugin, PJRT_Executable_GetCompiledMemoryStats, &mut args) }.ok()?;
        let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
        Some(CompiledMemory {
            generated_code: bytes(args.generated_code_size_in_bytes),
            arguments: bytes(args.argument_size_in_bytes),
            outputs: bytes(args.output_size_in_bytes),
            aliased: bytes(args.alias_size_in_bytes),
            temporaries: bytes(args.temp_size_in_bytes),
            peak: Some(bytes(args.peak_memory_in_bytes)).filter(|peak| *peak > 0),
        })
    }

    /// The compiler's cost estimate, where the plugin has one; the CPU plugin has none.
    pub fn cost(&self) -> Option<Cost> {
        let mut args =
            sys::PJRT_Executable_GetCostAnalysis_Args { executable: self.compiled(), ..Default::default() };
        let plugin = self.inner.client.plugin();
        // SAFETY: the executable is live.
        unsafe { call!(plugin, PJRT_Executable_GetCostAnalysis, &mut args) }.ok()?;
        // SAFETY: the executable is live and lends its properties, whose names are lent too.
        let find = |wanted: &str| unsafe {
            lent(args.properties, args.num_properties)
                .iter()
                .filter(|property| property.kind == sys::PJRT_NAMED_VALUE_FLOAT)
                .find(|property| lent(property.name.cast::<u8>(), property.name_size) == wanted.as_bytes())
                .map(|property| f64::from(property.value.float_value))
        };
        Some(Cost { flops: find("flops")?, bytes_accessed: find("bytes accessed")? })
    }

    fn compiled(&self) -> *mut sys::PJRT_Executable {
        self.inner.compiled.as_ptr()
    }
}

impl Inner {
    /// Reads name, devices, output shapes and signature.
    fn read(&mut self) -> Result<()> {
        let plugin = Arc::clone(self.client.plugin());
        let executable = self.compiled.as_ptr();
        let mut name = sys::PJRT_Executable_Name_Args { executable, ..Default::default() };
        let mut devices = sys::PJRT_LoadedExecutable_AddressableDevices_Args {
            executable: self.loaded.as_ptr(),
            ..Default::default()
        };
        // SAFETY: both handles are live and lend what they return.
        unsafe {
            call!(plugin, PJRT_Executable_Name, &mut name)?;
            call!(plugin, PJRT_LoadedExecutable_AddressableDevices, &mut devices)?;
            self.name = text_from(name.executable_name, name.executable_name_size);
            let devices = lent(devices.addressable_devices, devices.num_addressable_devices);
            self.devices = devices.iter().filter_map(|raw| self.client.position(*raw)).collect();
        }
        self.signature = self.optimized_program()?.and_then(|(format, hlo)| Signature::parse(&format, &hlo));
        self.outputs = match &self.signature {
            Some(signature) => signature.results.clone(),
            None => self.output_shapes()?,
        };
        let mut count = sys::PJRT_Executable_NumOutputs_Args { executable, ..Default::default() };
        // SAFETY: the executable is live.
        unsafe { call!(plugin, PJRT_Executable_NumOutputs, &mut count)? };
        match count.num_outputs == self.outputs.len() {
            true => Ok(()),
            // The lists handed to an execution are sized by this number.
            false => Err(Error::Plugin {
                path: plugin.path().to_owned(),
                message: format!(
                    "{} outputs are counted, {} described",
                    count.num_outputs,
                    self.outputs.len()
                ),
            }),
        }
    }

    /// The optimised module and its format; none where the plugin does not show it.
    fn optimized_program(&self) -> Result<Option<(String, Vec<u8>)>> {
        let plugin = self.client.plugin();
        let mut program = sys::PJRT_Program::new();
        let mut args = sys::PJRT_Executable_OptimizedProgram_Args {
            executable: self.compiled.as_ptr(),
            program: &raw mut program,
            ..Default::default()
        };
        // SAFETY: the first call only asks for the size.
        if let Err(error) = unsafe { call!(plugin, PJRT_Executable_OptimizedProgram, &mut args) } {
            return if error.code() == crate::Code::Unimplemented { Ok(None) } else { Err(error) };
        }
        let mut code = vec![0u8; program.code_size];
        program.code = code.as_mut_ptr().cast::<c_char>();
        args.program = &raw mut program;
        // SAFETY: the second call writes into a buffer of the size the first one asked for; the format text is static.
        unsafe {
            call!(plugin, PJRT_Executable_OptimizedProgram, &mut args)?;
            code.truncate(program.code_size);
            Ok(Some((text_from(program.format, program.format_size), code)))
        }
    }

    /// Output shapes as PJRT tells them.
    fn output_shapes(&self) -> Result<Vec<Arc<Shape>>> {
        let (plugin, executable) = (self.client.plugin(), self.compiled.as_ptr());
        let mut types = sys::PJRT_Executable_OutputElementTypes_Args { executable, ..Default::default() };
        let mut dims = sys::PJRT_Executable_OutputDimensions_Args { executable, ..Default::default() };
        // SAFETY: the executable is live and lends the lists; `dims` holds as many numbers as the ranks add up to.
        unsafe {
            call!(plugin, PJRT_Executable_OutputElementTypes, &mut types)?;
            call!(plugin, PJRT_Executable_OutputDimensions, &mut dims)?;
            let types = lent(types.output_types, types.num_output_types);
            let ranks = lent(dims.dim_sizes, dims.num_outputs);
            let mut rest = lent(dims.dims, ranks.iter().sum());
            types
                .iter()
                .zip(ranks)
                .map(|(kind, rank)| {
                    let (own, after) = rest.split_at(*rank);
                    rest = after;
                    Ok(Arc::new(Shape::new(DType::from_pjrt(*kind)?, own)))
                })
                .collect()
        }
    }
}

fn destroy_loaded(client: &Client, loaded: NonNull<sys::PJRT_LoadedExecutable>) {
    let mut args =
        sys::PJRT_LoadedExecutable_Destroy_Args { executable: loaded.as_ptr(), ..Default::default() };
    let plugin = client.plugin();
    // SAFETY: the handle is live and the caller's; running executions hold the program. Nobody to report an error to.
    let _ = unsafe { call!(plugin, PJRT_LoadedExecutable_Destroy, &mut args) };
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut args =
            sys::PJRT_Executable_Destroy_Args { executable: self.compiled.as_ptr(), ..Default::default() };
        let plugin = self.client.plugin();
        // SAFETY: the handle is live and ours.
        let _ = unsafe { call!(plugin, PJRT_Executable_Destroy, &mut args) };
        destroy_loaded(&self.client, self.loaded);
    }
}
