//! The one macro that declares argument structs.

/// Declares `#[repr(C)]` structs that begin with `struct_size` and `extension_start`, each with a `new` that zeroes every field
/// and sets `struct_size` to the end of the last one (what C calls `PJRT_STRUCT_SIZE`: no tail padding).
macro_rules! sized_structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            /// Size of this struct as the caller knows it, in bytes.
            pub struct_size: usize,
            /// Linked list of extensions; null for none.
            pub extension_start: *mut $crate::PJRT_Extension_Base,
            $($(#[$fdoc])* pub $field: $ty,)*
        }

        impl $name {
            /// Bytes up to the end of the last field.
            pub const STRUCT_SIZE: usize = {
                #[allow(unused_mut)]
                let mut end = 2 * size_of::<usize>();
                $({
                    let field_end = std::mem::offset_of!($name, $field) + size_of::<$ty>();
                    if field_end > end { end = field_end; }
                })*
                end
            };

            /// Every field zero or null, `struct_size` set.
            pub const fn new() -> Self {
                // SAFETY: every field is an integer, a float, a bool, a raw pointer, an optional function pointer or a struct
                // of these, for all of which zero is a value.
                let mut zeroed: Self = unsafe { std::mem::zeroed() };
                zeroed.struct_size = Self::STRUCT_SIZE;
                zeroed
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
    )*};
}

/// Declares opaque types of which only pointers exist.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name { _opaque: [u8; 0] }
    )*};
}

pub(crate) use {opaque, sized_structs};
