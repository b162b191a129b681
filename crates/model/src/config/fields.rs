use serde_json::{Map, Value};

use crate::Error;

/// The fields of a JSON config, read by name with aliases.
#[derive(Clone)]
pub(super) struct Fields {
    map: Map<String, Value>,
}

impl Fields {
    pub(super) fn new(text: &str) -> Result<Self, Error> {
        Ok(Self { map: serde_json::from_str(text)? })
    }

    /// The object under `name`, empty when absent.
    pub(super) fn section(&self, name: &'static str) -> Result<Self, Error> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(Self { map: Map::new() }),
            Some(Value::Object(map)) => Ok(Self { map: map.clone() }),
            Some(other) => Err(unsupported(name, other, "must be an object")),
        }
    }

    /// The first of `names` that is there and not null, with the name it was found by.
    pub(super) fn find(&self, names: &[&'static str]) -> Option<(&'static str, &Value)> {
        names.iter().find_map(|&name| match self.map.get(name) {
            None | Some(Value::Null) => None,
            Some(value) => Some((name, value)),
        })
    }

    /// A positive whole number.
    pub(super) fn size(&self, names: &[&'static str]) -> Result<usize, Error> {
        self.optional_size(names)?
            .ok_or_else(|| Error::Missing { field: names.first().copied().unwrap_or_default() })
    }

    /// A positive whole number, or `None` when absent or null.
    pub(super) fn optional_size(&self, names: &[&'static str]) -> Result<Option<usize>, Error> {
        let Some((name, value)) = self.find(names) else {
            return Ok(None);
        };
        match value.as_u64().filter(|&n| n > 0 && n <= u64::from(u32::MAX >> 1)) {
            Some(n) => Ok(Some(n as usize)),
            None => Err(unsupported(name, value, "must be a positive whole number below 2^31")),
        }
    }

    /// A whole number, 0 included.
    pub(super) fn count(&self, names: &[&'static str]) -> Result<usize, Error> {
        match self.find(names) {
            Some((_, value)) if value.as_u64() == Some(0) => Ok(0),
            _ => self.size(names),
        }
    }

    /// A whole number, 0 included, or the default when absent.
    pub(super) fn count_or(&self, names: &[&'static str], default: usize) -> Result<usize, Error> {
        if self.find(names).is_none() { Ok(default) } else { self.count(names) }
    }

    /// A number below 0, or the default when absent.
    pub(super) fn negative(&self, name: &'static str, default: f64) -> Result<f64, Error> {
        let number = self.number(&[name], default)?;
        if number < 0.0 {
            Ok(number)
        } else {
            Err(unsupported(name, &Value::from(number), "must be negative"))
        }
    }

    /// A finite number, or the default when absent.
    pub(super) fn number(&self, names: &[&'static str], default: f64) -> Result<f64, Error> {
        let Some((name, value)) = self.find(names) else {
            return Ok(default);
        };
        value.as_f64().filter(|n| n.is_finite()).ok_or_else(|| unsupported(name, value, "must be a number"))
    }

    /// A truth value, or the default when absent.
    pub(super) fn flag(&self, names: &[&'static str], default: bool) -> Result<bool, Error> {
        let Some((name, value)) = self.find(names) else {
            return Ok(default);
        };
        value.as_bool().ok_or_else(|| unsupported(name, value, "must be true or false"))
    }

    /// A list of strings, or `None` when absent.
    pub(super) fn strings(&self, name: &'static str) -> Result<Option<Vec<&str>>, Error> {
        let Some((_, value)) = self.find(&[name]) else {
            return Ok(None);
        };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
        list.map_or_else(|| Err(unsupported(name, value, "must be a list of strings")), |list| Ok(Some(list)))
    }

    /// A list of layer numbers, or `None` when absent.
    pub(super) fn indices(&self, name: &'static str) -> Result<Option<Vec<usize>>, Error> {
        let Some((_, value)) = self.find(&[name]) else {
            return Ok(None);
        };
        let list = value
            .as_array()
            .and_then(|list| list.iter().map(|n| n.as_u64().map(|n| n as usize)).collect::<Option<Vec<_>>>());
        list.map_or_else(
            || Err(unsupported(name, value, "must be a list of layer numbers")),
            |list| Ok(Some(list)),
        )
    }

    /// One token id or a list of them; empty when absent.
    pub(super) fn tokens(&self, name: &'static str) -> Result<Vec<u32>, Error> {
        let Some((_, value)) = self.find(&[name]) else {
            return Ok(Vec::new());
        };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids = match value {
            Value::Array(list) => list.iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        ids.ok_or_else(|| unsupported(name, value, "must be a token id or a list of token ids"))
    }

    /// Refuses any value other than `served`; absent counts as served.
    pub(super) fn only(&self, name: &'static str, served: &Value) -> Result<(), Error> {
        match self.find(&[name]) {
            Some((_, value)) if value != served && value.as_f64() != served.as_f64().or(Some(f64::NAN)) => {
                Err(unsupported(name, value, &format!("only {served} is served")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses any value at all.
    pub(super) fn never(&self, name: &'static str) -> Result<(), Error> {
        match self.find(&[name]) {
            Some((_, value)) => Err(unsupported(name, value, "is not served")),
            None => Ok(()),
        }
    }
}

pub(super) fn unsupported(field: &'static str, value: &Value, reason: &str) -> Error {
    Error::Unsupported { field, value: value.to_string(), reason: reason.to_owned() }
}
