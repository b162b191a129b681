use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A generation of TPU this workspace compiles for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TpuChip {
    /// Trillium: one device a chip, slices in two dimensions.
    V6e,
    /// Ironwood: two devices a chip, slices in three dimensions.
    Tpu7x,
}

/// A slice of TPUs that can be had, written as libtpu names it: `v6e:2x4`, `tpu7x:2x2x4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TpuSlice {
    chip: TpuChip,
    shape: &'static str,
}

impl TpuChip {
    /// The chip's part of a slice's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6e => "v6e",
            Self::Tpu7x => "tpu7x",
        }
    }

    /// Devices of a chip.
    pub fn devices(self) -> usize {
        match self {
            Self::V6e => 1,
            Self::Tpu7x => 2,
        }
    }

    /// Shapes that can be had. libtpu itself accepts any, `v6e:4x4x4` too.
    fn shapes(self) -> &'static [&'static str] {
        match self {
            Self::V6e => &["1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"],
            Self::Tpu7x => &["1x1x1", "2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8"],
        }
    }
}

impl TpuSlice {
    /// The generation.
    pub fn chip(self) -> TpuChip {
        self.chip
    }

    /// Chips of the slice.
    pub fn chips(self) -> usize {
        self.shape.split('x').filter_map(|side| side.parse::<usize>().ok()).product()
    }

    /// Devices of the slice.
    pub fn devices(self) -> usize {
        self.chips() * self.chip.devices()
    }
}

impl FromStr for TpuSlice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = [TpuChip::V6e, TpuChip::Tpu7x];
        let found = known.into_iter().find_map(|chip| {
            let asked = name.strip_prefix(chip.name())?.strip_prefix(':')?;
            let shape = chip.shapes().iter().find(|shape| **shape == asked)?;
            Some(Self { chip, shape })
        });
        found.ok_or_else(|| {
            let all: Vec<String> =
                known.iter().map(|chip| format!("{}:{{{}}}", chip.name(), chip.shapes().join(","))).collect();
            Error::argument("topology", format!("{name} is none of {}", all.join(" ")))
        })
    }
}

impl fmt::Display for TpuSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.chip.name(), self.shape)
    }
}

#[cfg(test)]
mod tests;
