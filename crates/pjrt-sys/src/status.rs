//! Versions, errors, events and named values.

use std::ffi::{c_char, c_int, c_void};

use crate::layout::{opaque, sized_structs};

opaque! {
    /// An error status; destroyed by `PJRT_Error_Destroy`.
    PJRT_Error,
    /// Something that becomes ready once, perhaps with an error.
    PJRT_Event,
}

/// Head of an extension struct.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PJRT_Extension_Base {
    pub struct_size: usize,
    /// A `PJRT_Extension_Type`.
    pub kind: c_int,
    pub next: *mut PJRT_Extension_Base,
}

/// An `absl::StatusCode`.
pub type PJRT_Error_Code = c_int;

/// Which member of [`PJRT_NamedValue`]'s union is set.
pub type PJRT_NamedValue_Type = c_int;
pub const PJRT_NAMED_VALUE_STRING: PJRT_NamedValue_Type = 0;
pub const PJRT_NAMED_VALUE_INT64: PJRT_NamedValue_Type = 1;
pub const PJRT_NAMED_VALUE_INT64_LIST: PJRT_NamedValue_Type = 2;
pub const PJRT_NAMED_VALUE_FLOAT: PJRT_NamedValue_Type = 3;
pub const PJRT_NAMED_VALUE_BOOL: PJRT_NamedValue_Type = 4;

/// The value of a [`PJRT_NamedValue`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union PJRT_NamedValue_Union {
    pub string_value: *const c_char,
    pub int64_value: i64,
    pub int64_array_value: *const i64,
    pub float_value: f32,
    pub bool_value: bool,
}

impl std::fmt::Debug for PJRT_NamedValue_Union {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PJRT_NamedValue_Union")
    }
}

/// Called once an event is ready, on any thread. The callee destroys `error` when it is not null.
pub type PJRT_Event_OnReadyCallback = unsafe extern "C" fn(error: *mut PJRT_Error, user_arg: *mut c_void);

sized_structs! {
    PJRT_Api_Version { major_version: c_int, minor_version: c_int }
    PJRT_Error_Destroy_Args { error: *mut PJRT_Error }
    PJRT_Error_Message_Args {
        error: *const PJRT_Error,
        /// Out; lives as long as the error, not terminated.
        message: *const c_char,
        /// Out.
        message_size: usize,
    }
    PJRT_Error_GetCode_Args {
        error: *const PJRT_Error,
        /// Out.
        code: PJRT_Error_Code,
    }
    /// A named, typed value: a client option, an attribute or a cost.
    PJRT_NamedValue {
        name: *const c_char,
        name_size: usize,
        kind: PJRT_NamedValue_Type,
        value: PJRT_NamedValue_Union,
        /// Elements of a string or list, 1 for a scalar.
        value_size: usize,
    }
    PJRT_Plugin_Initialize_Args {}
    PJRT_Event_Destroy_Args { event: *mut PJRT_Event }
    PJRT_Event_IsReady_Args {
        event: *mut PJRT_Event,
        /// Out.
        is_ready: bool,
    }
    /// Aborts the process unless the event is ready.
    PJRT_Event_Error_Args { event: *mut PJRT_Event }
    PJRT_Event_Await_Args { event: *mut PJRT_Event }
    PJRT_Event_OnReady_Args {
        event: *mut PJRT_Event,
        callback: Option<PJRT_Event_OnReadyCallback>,
        user_arg: *mut c_void,
    }
}
