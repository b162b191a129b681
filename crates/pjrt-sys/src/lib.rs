//! The PJRT C API as `#[repr(C)]` Rust, loaded at run time; no code of its own.
//!
//! Called by `pjrt` only. Names are the C names, so that the header of OpenXLA (`xla/pjrt/c/pjrt_c_api.h`) is the reference
//! for what a call does. The set covers API 0.81 to 0.117: fields a newer API appended are declared only where they matter,
//! a plugin enforces a minimum `struct_size` and accepts a larger one, and `PJRT_Api::struct_size` says how far the
//! function table of the loaded plugin goes.
#![allow(non_camel_case_types)]

mod api;
mod buffer;
mod client;
mod executable;
mod layout;
mod status;
mod topology;
mod transfer;

pub use api::{Call, InfallibleCall, PJRT_Api, Uncalled};
pub use buffer::*;
pub use client::*;
pub use executable::*;
pub use status::*;
pub use topology::*;
pub use transfer::*;

pub use libloading::Library;

use std::path::Path;

/// Oldest minor version of API 0 whose function table reaches every slot declared here.
pub const OLDEST_MINOR: i32 = 81;

/// Opens the shared object at `path` and returns it with the table its `GetPjrtApi` answers.
///
/// # Safety
/// The file must be a PJRT plugin: its initialisers run here, and the pointer is only as good as the plugin. The pointer is
/// valid while the library is open.
pub unsafe fn load(path: &Path) -> Result<(libloading::Library, *const PJRT_Api), libloading::Error> {
    // SAFETY: the caller vouches for the file, whose initialisers run now.
    let library = unsafe { libloading::Library::new(path)? };
    // SAFETY: this is the signature every PJRT plugin exports under this name.
    let table = unsafe {
        let entry = library.get::<unsafe extern "C" fn() -> *const PJRT_Api>(b"GetPjrtApi\0")?;
        entry()
    };
    Ok((library, table))
}
