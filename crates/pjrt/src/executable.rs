//! A compiled program and what is known about it.

use std::ptr::NonNull;
use std::sync::Arc;

use pjrt_sys as sys;

use crate::client::Client;
use crate::compiled::{Compiled, CompiledMemory, Cost};
use crate::device::Device;
use crate::dtype::Shape;
use crate::event::null_result;
use crate::plugin::{call, lent};
use crate::signature::Signature;
use crate::{Error, Result};

/// A program compiled for the devices of a client. Cloning is cheap; any thread may execute it, several at once.
#[derive(Clone)]
pub struct Executable {
    inner: Arc<Inner>,
}

struct Inner {
    // Before the client: it must be gone when the client goes.
    compiled: Compiled,
    client: Client,
    loaded: NonNull<sys::PJRT_LoadedExecutable>,
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
        // SAFETY: as above.
        let compiled = match got.and_then(|()| unsafe { Compiled::from_raw(plugin, get.executable) }) {
            Ok(compiled) => compiled,
            Err(error) => {
                destroy_loaded(client, loaded);
                return Err(error);
            }
        };
        let mut inner = Inner {
            compiled,
            client: client.clone(),
            loaded,
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

    /// The program as such: its memory plan, cost, optimised module and serialized form.
    pub fn compiled(&self) -> &Compiled {
        &self.inner.compiled
    }

    /// As [`Compiled::fingerprint`].
    pub fn fingerprint(&self) -> Result<String> {
        self.inner.compiled.fingerprint()
    }

    /// As [`Compiled::serialize`].
    pub fn serialize(&self) -> Result<Vec<u8>> {
        self.inner.compiled.serialize()
    }

    /// As [`Compiled::memory`].
    pub fn memory(&self) -> Option<CompiledMemory> {
        self.inner.compiled.memory()
    }

    /// As [`Compiled::cost`].
    pub fn cost(&self) -> Option<Cost> {
        self.inner.compiled.cost()
    }
}

impl Inner {
    /// Reads name, devices, output shapes and signature.
    fn read(&mut self) -> Result<()> {
        let plugin = Arc::clone(self.client.plugin());
        let mut devices = sys::PJRT_LoadedExecutable_AddressableDevices_Args {
            executable: self.loaded.as_ptr(),
            ..Default::default()
        };
        // SAFETY: the handle is live and lends what it returns.
        unsafe {
            call!(plugin, PJRT_LoadedExecutable_AddressableDevices, &mut devices)?;
            let devices = lent(devices.addressable_devices, devices.num_addressable_devices);
            self.devices = devices.iter().filter_map(|raw| self.client.position(*raw)).collect();
        }
        self.name = self.compiled.name()?;
        let program = self.compiled.optimized_program()?;
        self.signature = program.and_then(|(format, hlo)| Signature::parse(&format, &hlo));
        self.outputs = match &self.signature {
            Some(signature) => signature.results.clone(),
            None => self.compiled.output_shapes()?,
        };
        let (counted, described) = (self.compiled.num_outputs()?, self.outputs.len());
        match counted == described {
            true => Ok(()),
            // The lists handed to an execution are sized by this number.
            false => Err(Error::Plugin {
                path: plugin.path().to_owned(),
                message: format!("{counted} outputs are counted, {described} described"),
            }),
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
        destroy_loaded(&self.client, self.loaded);
    }
}
