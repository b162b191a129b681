//! The devices of a client.

use std::sync::Arc;

use pjrt_sys as sys;

use crate::Result;
use crate::plugin::{Plugin, call, text_from};

/// A device this process can use. Lent by its client, which owns it.
pub struct Device {
    plugin: Arc<Plugin>,
    raw: *mut sys::PJRT_Device,
    memory: *mut sys::PJRT_Memory,
    id: i32,
    local_hardware_id: i32,
    kind: String,
    description: String,
}

// SAFETY: devices are immutable and owned by the client, which lends `Device` only while it lives.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("id", &self.id).field("description", &self.description).finish()
    }
}

/// What a device says about its memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// In use now.
    pub in_use: u64,
    /// Most that was ever in use.
    pub peak: Option<u64>,
    /// All there is to allocate from.
    pub limit: Option<u64>,
    /// Largest block that could be allocated now.
    pub largest_free_block: Option<u64>,
}

impl Device {
    /// Describes a device.
    ///
    /// # Safety
    /// `raw` must be a live device of a client of `plugin`, and the result must not outlive that client.
    pub(crate) unsafe fn new(plugin: &Arc<Plugin>, raw: *mut sys::PJRT_Device) -> Result<Self> {
        let mut described = sys::PJRT_Device_GetDescription_Args { device: raw, ..Default::default() };
        let mut hardware = sys::PJRT_Device_LocalHardwareId_Args { device: raw, ..Default::default() };
        let mut memory = sys::PJRT_Device_DefaultMemory_Args { device: raw, ..Default::default() };
        // SAFETY: the device is live.
        unsafe {
            call!(plugin, PJRT_Device_GetDescription, &mut described)?;
            call!(plugin, PJRT_Device_LocalHardwareId, &mut hardware)?;
            call!(plugin, PJRT_Device_DefaultMemory, &mut memory)?;
        }
        let device_description = described.device_description;
        let mut id = sys::PJRT_DeviceDescription_Id_Args { device_description, ..Default::default() };
        let mut kind = sys::PJRT_DeviceDescription_Kind_Args { device_description, ..Default::default() };
        let mut text = sys::PJRT_DeviceDescription_ToString_Args { device_description, ..Default::default() };
        // SAFETY: the description lives as long as its device, and lends its texts as long.
        let (kind, description) = unsafe {
            call!(plugin, PJRT_DeviceDescription_Id, &mut id)?;
            call!(plugin, PJRT_DeviceDescription_Kind, &mut kind)?;
            call!(plugin, PJRT_DeviceDescription_ToString, &mut text)?;
            (
                text_from(kind.device_kind, kind.device_kind_size),
                text_from(text.to_string, text.to_string_size),
            )
        };
        Ok(Self {
            plugin: Arc::clone(plugin),
            raw,
            memory: memory.memory,
            id: id.id,
            local_hardware_id: hardware.local_hardware_id,
            kind,
            description,
        })
    }

    /// Number of the device among all of the client's; what a device assignment names.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// Number of the device on this host, -1 where undefined.
    pub fn local_hardware_id(&self) -> i32 {
        self.local_hardware_id
    }

    /// The kind of chip, such as `cpu` or `TPU v5e`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// A line for logs.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Memory figures, where the plugin has them; the CPU plugin has none.
    pub fn memory_stats(&self) -> Option<MemoryStats> {
        let mut args = sys::PJRT_Device_MemoryStats_Args { device: self.raw, ..Default::default() };
        // SAFETY: the device is live while it is lent.
        unsafe { call!(self.plugin, PJRT_Device_MemoryStats, &mut args) }.ok()?;
        let given = |value: i64, is_set: bool| is_set.then(|| u64::try_from(value).ok()).flatten();
        Some(MemoryStats {
            in_use: u64::try_from(args.bytes_in_use).unwrap_or(0),
            peak: given(args.peak_bytes_in_use, args.peak_bytes_in_use_is_set),
            limit: given(args.bytes_limit, args.bytes_limit_is_set),
            largest_free_block: given(args.largest_free_block_bytes, args.largest_free_block_bytes_is_set),
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::PJRT_Device {
        self.raw
    }

    pub(crate) fn memory(&self) -> *mut sys::PJRT_Memory {
        self.memory
    }
}
