//! A member in etcd: its key, and the JSON under it.

use etcd_client::KeyValue;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor};
use proto::v1::WorkerRecord;
use serde::{Deserialize, Serialize};

use crate::{Error, complete};

/// Of the JSON's shape. A reader skips what is of another.
const VERSION: u32 = 1;

/// The keys of one cluster's workers.
#[derive(Debug, Clone)]
pub(super) struct Keys(String);

impl Keys {
    /// Those of the cluster that has this prefix.
    pub(super) fn below(prefix: &str) -> Self {
        Self(format!("{}/workers/", prefix.trim_end_matches('/')))
    }

    /// What all of them begin with.
    pub(super) fn all(&self) -> &str {
        &self.0
    }

    /// A worker's.
    pub(super) fn of(&self, name: &str) -> String {
        format!("{}{name}", self.0)
    }

    /// Whose it is.
    pub(super) fn name<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key.strip_prefix(self.0.as_bytes())?).ok()
    }
}

/// What lies under a key. `record` is a `tandem.v1.WorkerRecord` in protobuf's JSON mapping.
#[derive(Debug, Serialize, Deserialize)]
struct Value {
    version: u32,
    record: serde_json::Value,
}

/// Turns records into JSON and back, by the contract's own description.
#[derive(Debug, Clone)]
pub(super) struct Format(MessageDescriptor);

impl Format {
    pub(super) fn new() -> Result<Self, Error> {
        let broken = |reason: String| Error::Contract { reason };
        let pool = DescriptorPool::decode(proto::DESCRIPTORS).map_err(|error| broken(error.to_string()))?;
        let name = "tandem.v1.WorkerRecord";
        let message = pool.get_message_by_name(name);
        message.map(Self).ok_or_else(|| broken(format!("{name} is not in the descriptors")))
    }

    pub(super) fn write(&self, record: &WorkerRecord) -> Result<Vec<u8>, Error> {
        let broken = |reason: String| Error::Contract { reason };
        let mut message = DynamicMessage::new(self.0.clone());
        message.transcode_from(record).map_err(|error| broken(error.to_string()))?;
        let json = |record| serde_json::to_vec(&Value { version: VERSION, record });
        serde_json::to_value(&message).and_then(json).map_err(|error| broken(error.to_string()))
    }

    /// The record under a key, or why it is none of ours. Fields that later versions add are passed over.
    pub(super) fn read(&self, keys: &Keys, entry: &KeyValue) -> Result<WorkerRecord, String> {
        let value: Value = serde_json::from_slice(entry.value()).map_err(|error| error.to_string())?;
        if value.version != VERSION {
            return Err(format!("version {} is not known", value.version));
        }
        let lenient = DeserializeOptions::new().deny_unknown_fields(false);
        let message = DynamicMessage::deserialize_with_options(self.0.clone(), value.record, &lenient)
            .map_err(|error| error.to_string())?;
        let record: WorkerRecord = message.transcode_to().map_err(|error| error.to_string())?;
        complete(&record).map_err(|error| error.to_string())?;
        if keys.name(entry.key()) != Some(record.name.as_str()) {
            return Err(format!("the record is of {:?}", record.name));
        }
        Ok(record)
    }
}
