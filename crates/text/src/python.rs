//! JSON to the letter as Python's `json.dumps(ensure_ascii=False)` writes it: models have seen no other.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// With a space after each comma and colon, Python's default.
pub(crate) fn dumps(value: &impl Serialize) -> String {
    written(value, Python { comma: b", ", colon: b": " })
}

/// Without spaces.
pub(crate) fn dumps_compact(value: &impl Serialize) -> String {
    written(value, Python { comma: b",", colon: b":" })
}

/// On lines of their own, indented by so many spaces.
pub(crate) fn dumps_indented(value: &impl Serialize, indent: usize) -> String {
    written(value, PrettyFormatter::with_indent(&vec![b' '; indent]))
}

fn written<F: Formatter>(value: &impl Serialize, formatter: F) -> String {
    let mut bytes = Vec::new();
    // What is written comes from JSON, and a vector takes every byte: nothing can fail.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter));
    String::from_utf8(bytes).unwrap_or_default()
}

struct Python {
    comma: &'static [u8],
    colon: &'static [u8],
}

impl Formatter for Python {
    /// Python's `repr`: an exponent has a sign and two digits at least.
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let text = format!("{value:?}");
        let Some((digits, exponent)) = text.split_once('e') else {
            return writer.write_all(text.as_bytes());
        };
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        write!(writer, "{digits}e{sign}{exponent:0>2}")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { CompactFormatter.begin_array_value(writer, true) } else { writer.write_all(self.comma) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { CompactFormatter.begin_object_key(writer, true) } else { writer.write_all(self.comma) }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.colon)
    }
}

#[cfg(test)]
mod tests;
