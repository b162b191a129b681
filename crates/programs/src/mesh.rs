use stablehlo::{Channel, Func, Reducer, Sharding, Value};

/// The devices a program is made for.
///
/// On one device every argument and result is annotated as whole. On several, a program is written as one of them sees it:
/// its share of the heads, of the experts and of the rows of tables, and it joins the others where a sum over all of them is
/// needed. The same text runs on every device, as so many replicas; which share it is, is an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    devices: usize,
}

impl Default for Mesh {
    fn default() -> Self {
        Self::one_device()
    }
}

const NAME: &str = "mesh";

impl Mesh {
    /// One device.
    #[must_use]
    pub fn one_device() -> Self {
        Self { devices: 1 }
    }

    /// So many devices, each with a share of heads and experts.
    #[must_use]
    pub fn over(devices: usize) -> Self {
        Self { devices: devices.max(1) }
    }

    /// How many there are.
    #[must_use]
    pub fn devices(self) -> usize {
        self.devices
    }

    pub(crate) fn is_one(self) -> bool {
        self.devices == 1
    }

    pub(crate) fn declare(self) -> stablehlo::Mesh {
        stablehlo::Mesh::new(NAME, [("model", 1)])
    }

    /// The annotation of an array, where programs have some.
    pub(crate) fn whole(self, rank: usize) -> Option<Sharding> {
        self.is_one().then(|| Sharding::replicated(NAME, rank))
    }

    /// The sum of what the devices have.
    pub(crate) fn sum(self, f: &Func, x: Value) -> Value {
        if self.is_one() { x } else { f.all_reduce(x, &self.all(), Reducer::Add) }
    }

    /// What the devices have, one after the other along an axis.
    pub(crate) fn gather(self, f: &Func, x: Value, axis: usize) -> Value {
        if self.is_one() { x } else { f.all_gather(x, &self.all(), axis) }
    }

    fn all(self) -> Channel {
        Channel::Replicas(vec![(0..self.devices as i64).collect()])
    }
}

/// Which device of a mesh a program is told it runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) mesh: Mesh,
    /// s32 scalar; none on a mesh of one.
    pub(crate) number: Option<Value>,
}

impl Share {
    /// On the only device.
    #[cfg(test)]
    pub(crate) fn of_one() -> Self {
        Self { mesh: Mesh::one_device(), number: None }
    }

    /// This device's part of what all have alike, cut evenly along an axis.
    pub(crate) fn part(self, f: &Func, x: Value, axis: usize) -> Value {
        let Some(number) = self.number else { return x };
        let mut sizes = f.dims(x);
        sizes[axis] /= self.mesh.devices as i64;
        let mut starts = vec![f.scalar(0i32); sizes.len()];
        starts[axis] = f.mul_scalar(number, sizes[axis] as f64);
        f.dynamic_slice(x, &starts, &sizes)
    }

    /// Rows of a table of which every device holds its part, looked up by s32 `ids [rows]`.
    pub(crate) fn look_up(self, f: &Func, table: Value, ids: Value) -> Value {
        let Some(number) = self.number else { return f.take_rows(table, ids) };
        let held = f.dim(table, 0);
        let first = f.mul_scalar(number, held as f64);
        let own = f.sub(ids, f.broadcast_like(first, ids, &[]));
        let found = f.take_rows(table, own);
        let inside = f.and(f.ge(own, f.splat_like(own, 0.0)), f.lt(own, f.splat_like(own, held as f64)));
        let inside = f.broadcast_like(inside, found, &[0]);
        self.mesh.sum(f, f.select(inside, found, f.splat_like(found, 0.0)))
    }
}
