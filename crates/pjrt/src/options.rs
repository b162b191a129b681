//! How a program is compiled: for how many devices, which ones, and with which partitioner.

use crate::client::{Client, OptionValue};
use crate::device::Device;
use crate::wire::Writer;
use crate::{Error, Result};

/// Compile options. The default is one device, the client's first.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// Copies of the program that run on different data.
    pub num_replicas: usize,
    /// Devices one copy is split over.
    pub num_partitions: usize,
    /// Whether the program is one for all devices, to be split by its shardings.
    pub use_spmd: bool,
    /// Whether the shardings are Shardy's (`sdy.*`) instead of GSPMD's (`mhlo.sharding`).
    pub use_shardy: bool,
    /// Device ids, `[replica][partition]`; the plugin chooses where none are given.
    pub device_assignment: Option<Vec<Vec<i32>>>,
    /// Flags of the compiler by name (`xla_...`), for this program only.
    pub flags: Vec<(String, OptionValue)>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            num_replicas: 1,
            num_partitions: 1,
            use_spmd: false,
            use_shardy: false,
            device_assignment: None,
            flags: Vec::new(),
        }
    }
}

impl CompileOptions {
    /// For one device, which need not be the client's first.
    pub fn on_device(device: &Device) -> Self {
        Self { device_assignment: Some(vec![vec![device.id()]]), ..Self::default() }
    }

    /// One program split over `devices` by its Shardy shardings, in the order of the mesh.
    pub fn sharded_over<'a>(devices: impl IntoIterator<Item = &'a Device>) -> Self {
        Self::sharded_over_ids(devices.into_iter().map(Device::id))
    }

    /// As [`sharded_over`](Self::sharded_over), by device ids: for devices that need not be there.
    pub fn sharded_over_ids(ids: impl IntoIterator<Item = i32>) -> Self {
        let ids: Vec<_> = ids.into_iter().collect();
        Self {
            num_partitions: ids.len(),
            use_spmd: true,
            use_shardy: true,
            device_assignment: Some(vec![ids]),
            ..Self::default()
        }
    }

    /// One program that runs on each of `devices`, written as one of them sees it; its collectives join them by their place
    /// in this order.
    pub fn replicated_over<'a>(devices: impl IntoIterator<Item = &'a Device>) -> Self {
        Self::replicated_over_ids(devices.into_iter().map(Device::id))
    }

    /// As [`replicated_over`](Self::replicated_over), by device ids: for devices that need not be there.
    pub fn replicated_over_ids(ids: impl IntoIterator<Item = i32>) -> Self {
        let rows: Vec<_> = ids.into_iter().map(|id| vec![id]).collect();
        Self { num_replicas: rows.len(), device_assignment: Some(rows), ..Self::default() }
    }

    /// The serialized `xla.CompileOptionsProto`, once it is known to fit the client. Field numbers are those of
    /// `xla/pjrt/proto/compile_options.proto`.
    pub(crate) fn encode(&self, client: &Client) -> Result<Vec<u8>> {
        let known: Vec<_> = client.devices().iter().map(Device::id).collect();
        self.encode_for("the client", &known)
    }

    /// As [`encode`](Self::encode), for devices of which only the ids are `known`; `owner` says in errors whose they are.
    pub(crate) fn encode_for(&self, owner: &str, known: &[i32]) -> Result<Vec<u8>> {
        self.check(owner, known)?;
        let mut build = Writer::default()
            .varint(4, self.num_replicas as u64)
            .varint(5, self.num_partitions as u64)
            .flag(6, self.use_spmd);
        if let Some(assignment) = &self.device_assignment {
            build = build.message(9, self.assignment(assignment));
        }
        let mut options = Writer::default().message(3, build.flag(19, self.use_shardy));
        for (name, value) in &self.flags {
            options = options
                .message(7, Writer::default().bytes(1, name.as_bytes()).message(2, flag(name, value)?));
        }
        Ok(options.finish())
    }

    /// An `xla.DeviceAssignmentProto`: per partition, the device of each replica.
    fn assignment(&self, rows: &[Vec<i32>]) -> Writer {
        let counts =
            Writer::default().varint(1, self.num_replicas as u64).varint(2, self.num_partitions as u64);
        (0..self.num_partitions).fold(counts, |proto, partition| {
            let ids = rows.iter().filter_map(|row| row.get(partition)).map(|id| *id as u64);
            proto.message(3, Writer::default().packed(1, ids))
        })
    }

    fn check(&self, owner: &str, known: &[i32]) -> Result<()> {
        let needed = self.num_replicas.saturating_mul(self.num_partitions);
        if needed == 0 || needed > known.len() {
            let message = format!("{needed} devices are asked for, {owner} has {}", known.len());
            return Err(Error::argument("num_replicas x num_partitions", message));
        }
        let Some(rows) = &self.device_assignment else {
            return Ok(());
        };
        if rows.len() != self.num_replicas || rows.iter().any(|row| row.len() != self.num_partitions) {
            let message = format!("it is not {} rows of {} ids", self.num_replicas, self.num_partitions);
            return Err(Error::argument("device_assignment", message));
        }
        let mut ids: Vec<_> = rows.iter().flatten().copied().collect();
        if let Some(unknown) = ids.iter().find(|id| !known.contains(id)) {
            return Err(Error::argument("device_assignment", format!("{owner} has no device {unknown}")));
        }
        ids.sort_unstable();
        ids.dedup();
        match ids.len() == needed {
            true => Ok(()),
            false => Err(Error::argument("device_assignment", "a device is named twice")),
        }
    }
}

/// An `xla.OptionOverrideProto`.
fn flag(name: &str, value: &OptionValue) -> Result<Writer> {
    let proto = Writer::default();
    match value {
        OptionValue::String(text) => Ok(proto.bytes(1, text.as_bytes())),
        OptionValue::Bool(switch) => Ok(proto.varint(2, u64::from(*switch))),
        OptionValue::Int64(number) => Ok(proto.varint(3, *number as u64)),
        OptionValue::Float(number) => Ok(proto.double(4, f64::from(*number))),
        OptionValue::Int64List(_) => Err(Error::argument(name, "a compiler flag cannot be a list")),
    }
}
