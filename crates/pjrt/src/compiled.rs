//! A compiled program as such: what is known about it without the devices it would run on.

use std::ffi::c_char;
use std::ptr::NonNull;
use std::sync::Arc;

use pjrt_sys as sys;

use crate::Result;
use crate::dtype::{DType, Shape};
use crate::event::null_result;
use crate::hlo::HloModule;
use crate::plugin::{Plugin, call, lent, text_from};

/// A program compiled for a [`Topology`](crate::Topology), or the compiled half of an [`Executable`](crate::Executable).
pub struct Compiled {
    plugin: Arc<Plugin>,
    raw: NonNull<sys::PJRT_Executable>,
}

// SAFETY: PJRT executables are thread-safe.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").field("plugin", &self.plugin.path()).finish_non_exhaustive()
    }
}

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
    /// Most that is in use at once, arguments and outputs included, where the plugin says. This, not the sum of the others,
    /// is what must fit: a plugin may leave `temporaries` at 0.
    pub peak: Option<u64>,
    /// Everything, aliases counted once, where the plugin says.
    pub total: Option<u64>,
    /// What is allocated from the device's pool, where the plugin says.
    pub allocated: Option<u64>,
    /// Allocations of unknown size, where the plugin says.
    pub indefinite: Option<u64>,
    /// Peak without padding, where the plugin says.
    pub peak_unpadded: Option<u64>,
}

/// What one execution costs, as the compiler estimates it. Loops count once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes_accessed: f64,
}

impl Compiled {
    /// Takes over a compiled program.
    ///
    /// # Safety
    /// `raw` must be null or a live executable of `plugin` that nothing else destroys.
    pub(crate) unsafe fn from_raw(plugin: &Arc<Plugin>, raw: *mut sys::PJRT_Executable) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| null_result(plugin, "PJRT_Executable"))?;
        Ok(Self { plugin: Arc::clone(plugin), raw })
    }

    /// The name of the module.
    pub fn name(&self) -> Result<String> {
        let mut args = sys::PJRT_Executable_Name_Args { executable: self.raw(), ..Default::default() };
        let plugin = &self.plugin;
        // SAFETY: the executable is live and lends its name.
        unsafe {
            call!(plugin, PJRT_Executable_Name, &mut args)?;
            Ok(text_from(args.executable_name, args.executable_name_size))
        }
    }

    /// A text that is the same for the same compiled program.
    pub fn fingerprint(&self) -> Result<String> {
        let mut args = sys::PJRT_Executable_Fingerprint_Args { executable: self.raw(), ..Default::default() };
        let plugin = &self.plugin;
        // SAFETY: the executable is live and lends its fingerprint.
        unsafe {
            call!(plugin, PJRT_Executable_Fingerprint, &mut args)?;
            Ok(text_from(args.executable_fingerprint, args.executable_fingerprint_size))
        }
    }

    /// The bytes [`Client::load_executable`](crate::Client::load_executable) takes, on the same plugin and the same kind of machine.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let mut args = sys::PJRT_Executable_Serialize_Args { executable: self.raw(), ..Default::default() };
        let plugin = &self.plugin;
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
        let mut args =
            sys::PJRT_Executable_GetCompiledMemoryStats_Args { executable: self.raw(), ..Default::default() };
        let plugin = &self.plugin;
        // SAFETY: the executable is live.
        unsafe { call!(plugin, PJRT_Executable_GetCompiledMemoryStats, &mut args) }.ok()?;
        let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
        let said = |value: i64| Some(bytes(value)).filter(|bytes| *bytes > 0);
        Some(CompiledMemory {
            generated_code: bytes(args.generated_code_size_in_bytes),
            arguments: bytes(args.argument_size_in_bytes),
            outputs: bytes(args.output_size_in_bytes),
            aliased: bytes(args.alias_size_in_bytes),
            temporaries: bytes(args.temp_size_in_bytes),
            peak: said(args.peak_memory_in_bytes),
            total: said(args.total_size_in_bytes),
            allocated: said(args.total_allocation_bytes),
            indefinite: said(args.indefinite_allocations),
            peak_unpadded: said(args.peak_unpadded_heap_bytes),
        })
    }

    /// The compiler's cost estimate, where the plugin has one; the CPU plugin has none.
    pub fn cost(&self) -> Option<Cost> {
        let mut args =
            sys::PJRT_Executable_GetCostAnalysis_Args { executable: self.raw(), ..Default::default() };
        let plugin = &self.plugin;
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

    /// The optimised module; none where the plugin does not show it in a form this room reads.
    pub fn hlo(&self) -> Result<Option<HloModule>> {
        Ok(self.optimized_program()?.and_then(|(format, bytes)| HloModule::parse(&format, &bytes)))
    }

    /// The optimised module and its format; none where the plugin does not show it.
    pub(crate) fn optimized_program(&self) -> Result<Option<(String, Vec<u8>)>> {
        let plugin = &self.plugin;
        let mut program = sys::PJRT_Program::new();
        let mut args = sys::PJRT_Executable_OptimizedProgram_Args {
            executable: self.raw(),
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
    pub(crate) fn output_shapes(&self) -> Result<Vec<Arc<Shape>>> {
        let (plugin, executable) = (&self.plugin, self.raw());
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

    /// Number of outputs on each device.
    pub(crate) fn num_outputs(&self) -> Result<usize> {
        let mut args = sys::PJRT_Executable_NumOutputs_Args { executable: self.raw(), ..Default::default() };
        let plugin = &self.plugin;
        // SAFETY: the executable is live.
        unsafe { call!(plugin, PJRT_Executable_NumOutputs, &mut args)? };
        Ok(args.num_outputs)
    }

    fn raw(&self) -> *mut sys::PJRT_Executable {
        self.raw.as_ptr()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        let mut args = sys::PJRT_Executable_Destroy_Args { executable: self.raw(), ..Default::default() };
        let plugin = &self.plugin;
        // SAFETY: the handle is live and ours. Nobody to report an error to.
        let _ = unsafe { call!(plugin, PJRT_Executable_Destroy, &mut args) };
    }
}
