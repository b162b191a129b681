//! A loaded plugin and the way to call it.

use std::collections::HashMap;
use std::ffi::c_char;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use pjrt_sys as sys;
use sha2::{Digest, Sha256};

use crate::{Code, Error, Result};

/// Calls a slot of a plugin by its C name. Unsafe as [`Plugin::call`]: the pointers in the arguments must be what that call asks for.
macro_rules! call {
    ($plugin:expr, $slot:ident, $args:expr) => {
        $plugin.call(stringify!($slot), $plugin.api().$slot, $args)
    };
}
pub(crate) use call;

/// One `Plugin` per file, for the life of the process: initialising the same plugin twice is not defined.
static LOADED: LazyLock<Mutex<HashMap<PathBuf, Arc<Plugin>>>> = LazyLock::new(Mutex::default);

/// A PJRT plugin: a shared object with a table of calls.
///
/// It is never unloaded: plugins start threads and register exit handlers that would outlive the code.
pub struct Plugin {
    api: sys::PJRT_Api,
    path: PathBuf,
    sha256: OnceLock<[u8; 32]>,
    _library: ManuallyDrop<sys::Library>,
}

// SAFETY: the table is read-only after loading and every call in it may come from any thread.
unsafe impl Send for Plugin {}
// SAFETY: as above.
unsafe impl Sync for Plugin {}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("path", &self.path).field("api_version", &self.api_version()).finish()
    }
}

/// Ends the process at once, without its exit handlers. A plugin's handlers destroy what its compiler uses, so that an ordinary
/// exit while another thread compiles is a crash.
pub fn leave(status: i32) -> ! {
    // SAFETY: ends the process; nothing runs after it that could meet a broken promise.
    unsafe { libc::_exit(status) }
}

impl Plugin {
    /// Loads and initialises the plugin at `path`; a second load of the same file hands out the same plugin.
    ///
    /// Running foreign code is what this does: `path` must come from whoever runs the process, never from a request.
    pub fn load(path: &Path) -> Result<Arc<Self>> {
        let fail = |message: String| Error::Plugin { path: path.to_owned(), message };
        let path = path.canonicalize().map_err(|error| fail(error.to_string()))?;
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = loaded.get(&path) {
            return Ok(Arc::clone(plugin));
        }
        // SAFETY: the caller named the file as a PJRT plugin; nothing here can check more.
        let (library, table) = unsafe { sys::load(&path) }.map_err(|error| fail(error.to_string()))?;
        let library = ManuallyDrop::new(library);
        // SAFETY: a plugin's table stays valid while it is loaded, which is for ever.
        let api = unsafe { copy_table(table) }.map_err(fail)?;
        let plugin = Arc::new(Self { api, path: path.clone(), sha256: OnceLock::new(), _library: library });
        let mut args = sys::PJRT_Plugin_Initialize_Args::new();
        // SAFETY: the argument struct matches the slot.
        unsafe { call!(plugin, PJRT_Plugin_Initialize, &mut args)? };
        loaded.insert(path, Arc::clone(&plugin));
        Ok(plugin)
    }

    /// Major and minor version of the PJRT API the plugin was built against.
    pub fn api_version(&self) -> (i32, i32) {
        (self.api.pjrt_api_version.major_version, self.api.pjrt_api_version.minor_version)
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// sha256 of the file; read at the first call (hundreds of megabytes), kept after.
    pub fn sha256(&self) -> Result<[u8; 32]> {
        if let Some(known) = self.sha256.get() {
            return Ok(*known);
        }
        let digest = digest_file(&self.path).map_err(|error| Error::io(&self.path, &error))?;
        Ok(*self.sha256.get_or_init(|| digest))
    }

    pub(crate) fn api(&self) -> &sys::PJRT_Api {
        &self.api
    }

    /// Calls a slot and turns its status into a result.
    ///
    /// # Safety
    /// `slot` must be the slot `name`, and the pointers in `args` must be what that call asks for.
    pub(crate) unsafe fn call<A>(&self, name: &'static str, slot: sys::Call<A>, args: &mut A) -> Result<()> {
        let call = slot.ok_or(Error::Missing { call: name })?;
        // SAFETY: passed on to the caller.
        let status = unsafe { call(args) };
        // SAFETY: a status is null or owned by us.
        unsafe { self.status(name, status) }
    }

    /// Turns a status into a result and destroys it.
    ///
    /// # Safety
    /// `status` must be null or a live error of this plugin that nothing else destroys.
    pub(crate) unsafe fn status(&self, call: &'static str, status: *mut sys::PJRT_Error) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        let mut code = sys::PJRT_Error_GetCode_Args { error: status, ..Default::default() };
        if let Some(get) = self.api.PJRT_Error_GetCode {
            // SAFETY: the error is live. A failure to read its code would be an error about an error: dropped.
            let nested = unsafe { get(&mut code) };
            if !nested.is_null() {
                // SAFETY: we own it.
                unsafe { self.destroy_error(nested) };
            }
        }
        let mut text = sys::PJRT_Error_Message_Args { error: status, ..Default::default() };
        let mut message = String::new();
        if let Some(get) = self.api.PJRT_Error_Message {
            // SAFETY: the error is live, and its text lives as long as it.
            message = unsafe {
                get(&mut text);
                text_from(text.message, text.message_size)
            };
        }
        // SAFETY: we own it and are done with its text.
        unsafe { self.destroy_error(status) };
        Err(Error::Status { call, code: Code::from_raw(code.code), message })
    }

    /// # Safety
    /// `error` must be a live error of this plugin that nothing else destroys.
    unsafe fn destroy_error(&self, error: *mut sys::PJRT_Error) {
        let mut args = sys::PJRT_Error_Destroy_Args { error, ..Default::default() };
        if let Some(destroy) = self.api.PJRT_Error_Destroy {
            // SAFETY: passed on to the caller.
            unsafe { destroy(&mut args) };
        }
    }
}

/// Copies as much of the table as the plugin has; later slots stay null.
///
/// # Safety
/// `table` must be null or what `GetPjrtApi` returned.
unsafe fn copy_table(table: *const sys::PJRT_Api) -> std::result::Result<sys::PJRT_Api, String> {
    if table.is_null() {
        return Err("GetPjrtApi returned null".into());
    }
    // SAFETY: every plugin's table begins with its own size and the version.
    let (size, version) = unsafe { ((*table).struct_size, (*table).pjrt_api_version) };
    let (major, minor) = (version.major_version, version.minor_version);
    if major != 0 || minor < sys::OLDEST_MINOR {
        return Err(format!(
            "its PJRT API is {major}.{minor}, this program drives 0.{} and later",
            sys::OLDEST_MINOR
        ));
    }
    let mut own = std::mem::MaybeUninit::<sys::PJRT_Api>::zeroed();
    let bytes = size.min(size_of::<sys::PJRT_Api>());
    // SAFETY: the source has `struct_size` bytes, the target at least as many as are copied; zero is a value for the rest.
    unsafe {
        std::ptr::copy_nonoverlapping(table.cast::<u8>(), own.as_mut_ptr().cast::<u8>(), bytes);
        Ok(own.assume_init())
    }
}

/// Copies text the plugin lends.
///
/// # Safety
/// `size` bytes at `text` must be readable, or `text` null.
pub(crate) unsafe fn text_from(text: *const c_char, size: usize) -> String {
    if text.is_null() || size == 0 {
        return String::new();
    }
    // SAFETY: passed on to the caller.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), size) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// The slice a plugin lends, empty where the pointer is null.
///
/// # Safety
/// `count` elements at `first` must be readable for `'a`, or `first` null.
pub(crate) unsafe fn lent<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: passed on to the caller.
    unsafe { std::slice::from_raw_parts(first, count) }
}

fn digest_file(path: &Path) -> std::io::Result<[u8; 32]> {
    let mut file = std::fs::File::open(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(digest.finalize().into()),
            n => digest.update(&piece[..n]),
        }
    }
}
