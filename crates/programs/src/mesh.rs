use stablehlo::Sharding;

/// The grid of devices a program is made for.
///
/// Every argument and result carries a Shardy annotation from the start; on a mesh of one device all of them are
/// whole everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mesh;

const NAME: &str = "mesh";

impl Mesh {
    /// One device.
    #[must_use]
    pub fn one_device() -> Self {
        Self
    }

    pub(crate) fn declare(self) -> stablehlo::Mesh {
        stablehlo::Mesh::new(NAME, [("model", 1)])
    }

    pub(crate) fn whole(self, rank: usize) -> Sharding {
        Sharding::replicated(NAME, rank)
    }
}
