//! Meshes and how tensors are spread over them, printed as Shardy reads them.

use std::fmt;

use crate::error::{Fault, ensure};
use crate::types::Type;

/// A named grid of devices with named axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mesh {
    pub name: String,
    /// Axis names and sizes, outermost first.
    pub axes: Vec<(String, i64)>,
}

impl Mesh {
    pub fn new<'a>(name: &str, axes: impl IntoIterator<Item = (&'a str, i64)>) -> Self {
        Mesh {
            name: name.to_owned(),
            axes: axes.into_iter().map(|(axis, size)| (axis.to_owned(), size)).collect(),
        }
    }

    /// How many devices the mesh holds.
    pub fn devices(&self) -> i64 {
        self.axes.iter().map(|(_, size)| size).product()
    }

    /// The size of an axis.
    pub fn size(&self, axis: &str) -> Option<i64> {
        self.axes.iter().find(|(name, _)| name == axis).map(|(_, size)| *size)
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(|(axis, size)| format!("\"{axis}\"={size}")).collect();
        write!(out, "sdy.mesh @{} = <[{}]>", self.name, axes.join(", "))
    }
}

/// For each dimension of a tensor, the mesh axes it is split over (none: every device holds it whole).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sharding {
    pub mesh: String,
    pub dims: Vec<Vec<String>>,
}

impl Sharding {
    /// Split dimension `i` over the axes of `dims[i]`, majormost first: `Sharding::new("mesh", [&["data"][..], &[]])`.
    pub fn new<'a>(mesh: &str, dims: impl IntoIterator<Item = &'a [&'a str]>) -> Self {
        let owned = |axes: &[&str]| axes.iter().map(|axis| (*axis).to_owned()).collect();
        Sharding { mesh: mesh.to_owned(), dims: dims.into_iter().map(owned).collect() }
    }

    /// The same whole tensor of `rank` dimensions on every device.
    pub fn replicated(mesh: &str, rank: usize) -> Self {
        Sharding { mesh: mesh.to_owned(), dims: vec![Vec::new(); rank] }
    }

    /// Split one dimension of a tensor of `rank` dimensions over one axis.
    pub fn split(mesh: &str, rank: usize, dim: usize, axis: &str) -> Self {
        let mut sharding = Sharding::replicated(mesh, rank);
        if let Some(axes) = sharding.dims.get_mut(dim) {
            axes.push(axis.to_owned());
        }
        sharding
    }

    /// The part `<@mesh, [...]>` that stands in lists of shardings.
    pub(crate) fn body(&self) -> String {
        let dims: Vec<String> = self
            .dims
            .iter()
            .map(|axes| {
                format!(
                    "{{{}}}",
                    axes.iter().map(|axis| format!("\"{axis}\"")).collect::<Vec<_>>().join(", ")
                )
            })
            .collect();
        format!("<@{}, [{}]>", self.mesh, dims.join(", "))
    }

    /// One device's part of a tensor, or why it cannot be split so.
    pub(crate) fn part(&self, meshes: &[Mesh], whole: &Type) -> Result<Type, Fault> {
        let mut part = whole.clone();
        for (dim, size) in part.dims.iter_mut().zip(self.ways(meshes, whole)?) {
            ensure!(*dim % size == 0, Attribute, "sharding {self} splits a dimension of {dim} in {size}");
            *dim /= size;
        }
        Ok(part)
    }

    /// The tensor of which one device holds `part`.
    pub(crate) fn whole(&self, meshes: &[Mesh], part: &Type) -> Result<Type, Fault> {
        let mut whole = part.clone();
        for (dim, size) in whole.dims.iter_mut().zip(self.ways(meshes, part)?) {
            *dim *= size;
        }
        Ok(whole)
    }

    /// In how many ways each dimension is split.
    fn ways(&self, meshes: &[Mesh], ty: &Type) -> Result<Vec<i64>, Fault> {
        let mesh = meshes.iter().find(|mesh| mesh.name == self.mesh);
        ensure!(
            mesh.is_some(),
            Attribute,
            "sharding names mesh {}, which the module does not have",
            self.mesh
        );
        let (own, rank) = (self.dims.len(), ty.rank());
        ensure!(own == rank, Attribute, "sharding {self} has {own} dimensions, {ty} has {rank}");
        let mut used: Vec<&String> = Vec::new();
        let mut ways = vec![1; rank];
        for (way, axes) in ways.iter_mut().zip(&self.dims) {
            for axis in axes {
                let size = mesh.and_then(|mesh| mesh.size(axis));
                ensure!(size.is_some(), Attribute, "mesh {} has no axis {axis:?}", self.mesh);
                ensure!(!used.contains(&axis), Attribute, "sharding {self} uses axis {axis:?} twice");
                *way *= size.unwrap_or(1);
                used.push(axis);
            }
        }
        Ok(ways)
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "#sdy.sharding{}", self.body())
    }
}
