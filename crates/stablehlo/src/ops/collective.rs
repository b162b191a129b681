//! Work spread over devices: shardings, and what devices say to each other.

use crate::emit::{Built, RegionShape};
use crate::error::{Class, Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::ops::reduce::Reducer;
use crate::print::{list, matrix};
use crate::sharding::Sharding;
use crate::types::Type;

/// Which devices a collective joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Groups of replica ids, within each partition.
    Replicas(Vec<Vec<i64>>),
    /// Groups of device ids (`replica * partitions + partition`), with a positive channel number that is shared by what
    /// belongs together and differs from other collectives'.
    Devices { channel: i64, groups: Vec<Vec<i64>> },
}

impl Channel {
    fn groups(&self) -> &[Vec<i64>] {
        match self {
            Channel::Replicas(groups) | Channel::Devices { groups, .. } => groups,
        }
    }

    /// The attributes, and the size of a group.
    fn attributes(&self, takes_global_ids: bool) -> Result<(Vec<String>, i64), Fault> {
        let groups = self.groups();
        let size = groups.first().map_or(0, Vec::len);
        let even = size > 0 && groups.iter().all(|group| group.len() == size);
        ensure!(
            even,
            Attribute,
            "replica groups must be of one size, and not empty"
        );
        let mut members = groups.concat();
        members.sort_unstable();
        let distinct = members.windows(2).all(|pair| pair[0] != pair[1]) && members[0] >= 0;
        ensure!(
            distinct,
            Attribute,
            "replica groups name a device twice, or a negative one"
        );
        let mut attrs = self.channel();
        attrs.push(format!("replica_groups = {}", matrix(groups)));
        if takes_global_ids && matches!(self, Channel::Devices { .. }) {
            attrs.push("use_global_device_ids".to_owned());
        }
        Ok((attrs, size as i64))
    }

    fn channel(&self) -> Vec<String> {
        match self {
            Channel::Replicas(_) => Vec::new(),
            Channel::Devices { channel, .. } => {
                vec![format!(
                    "channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"
                )]
            }
        }
    }
}

impl Func {
    /// `x` combined element by element over the devices of each group.
    #[track_caller]
    pub fn all_reduce(&self, x: Value, channel: &Channel, reducer: Reducer) -> Value {
        let region = self.reducer_region(x, reducer);
        self.one(Op::AllReduce, &[x], |operands| {
            region.yields()?;
            let (attrs, _) = channel.attributes(true)?;
            let results = vec![operands.types[0].clone()];
            Ok(Built::generic(&operands, &attrs, &[region.labelled()], results))
        })
    }

    /// The `x` of each device of a group, one after the other along `axis`.
    #[track_caller]
    pub fn all_gather(&self, x: Value, channel: &Channel, axis: usize) -> Value {
        self.one(Op::AllGather, &[x], |operands| {
            let (mut attrs, size) = channel.attributes(true)?;
            let mut result = operands.types[0].clone();
            ensure!(
                axis < result.rank(),
                Axis,
                "axis {axis} is out of range for {result}"
            );
            result.dims[axis] *= size;
            attrs.push(format!("all_gather_dim = {axis} : i64"));
            Ok(Built::generic(&operands, &attrs, &[], vec![result]))
        })
    }

    /// `x` combined over the devices of each group, of which each device keeps its part along `axis`.
    #[track_caller]
    pub fn reduce_scatter(&self, x: Value, channel: &Channel, axis: usize, reducer: Reducer) -> Value {
        let region = self.reducer_region(x, reducer);
        self.one(Op::ReduceScatter, &[x], |operands| {
            region.yields()?;
            let (mut attrs, size) = channel.attributes(true)?;
            let mut result = operands.types[0].clone();
            ensure!(
                axis < result.rank(),
                Axis,
                "axis {axis} is out of range for {result}"
            );
            let dim = result.dims[axis];
            ensure!(
                dim % size == 0,
                Shape,
                "a group of {size} does not divide axis {axis} of {result}"
            );
            result.dims[axis] = dim / size;
            attrs.push(format!("scatter_dimension = {axis} : i64"));
            Ok(Built::generic(
                &operands,
                &attrs,
                &[region.labelled()],
                vec![result],
            ))
        })
    }

    /// `x` cut along `split_axis` into one part per device of a group; each device gets its part of everyone's, one after
    /// the other along `concat_axis`.
    #[track_caller]
    pub fn all_to_all(&self, x: Value, channel: &Channel, split_axis: usize, concat_axis: usize) -> Value {
        self.one(Op::AllToAll, &[x], |operands| {
            let (mut attrs, size) = channel.attributes(false)?;
            let mut result = operands.types[0].clone();
            let inside = split_axis.max(concat_axis) < result.rank();
            ensure!(inside, Axis, "an axis is out of range for {result}");
            ensure!(
                result.dims[split_axis] % size == 0,
                Shape,
                "a group of {size} does not divide axis {split_axis}"
            );
            result.dims[split_axis] /= size;
            result.dims[concat_axis] *= size;
            attrs.push(format!("split_dimension = {split_axis} : i64"));
            attrs.push(format!("concat_dimension = {concat_axis} : i64"));
            attrs.push(format!("split_count = {size} : i64"));
            Ok(Built::generic(&operands, &attrs, &[], vec![result]))
        })
    }

    /// `x` sent from the first device of each pair to the second; zeros where none sends. The channel's groups are the
    /// pairs.
    #[track_caller]
    pub fn collective_permute(&self, x: Value, pairs: &Channel) -> Value {
        self.one(Op::CollectivePermute, &[x], |operands| {
            let routes = pairs.groups();
            ensure!(
                routes.iter().all(|route| route.len() == 2),
                Attribute,
                "a route is not a pair of devices"
            );
            for end in [0, 1] {
                let mut ends: Vec<i64> = routes.iter().map(|route| route[end]).collect();
                ends.sort_unstable();
                let distinct = ends.windows(2).all(|pair| pair[0] != pair[1]);
                ensure!(distinct, Attribute, "a device sends or receives twice");
            }
            let mut attrs = pairs.channel();
            attrs.push(format!("source_target_pairs = {}", matrix(routes)));
            let results = vec![operands.types[0].clone()];
            Ok(Built::generic(&operands, &attrs, &[], results))
        })
    }

    #[track_caller]
    fn reducer_region(&self, x: Value, reducer: Reducer) -> crate::emit::Region {
        let element = self.type_or_scalar(x).with_dims([]);
        self.closed_region(&[element.clone(), element], |f, values| {
            vec![f.combine(reducer, values[0], values[1])]
        })
    }

    /// `x`, which the partitioner must spread so.
    #[track_caller]
    pub fn with_sharding(&self, x: Value, sharding: &Sharding) -> Value {
        self.one(Op::ShardingConstraint, &[x], |operands| {
            let ty = operands.types[0].clone();
            sharding.local_dims(&self.module.borrow().meshes, &ty.dims)?;
            Ok(Built::pretty(
                format!(" {} {} : {ty}", operands.names(), sharding.body()),
                vec![ty],
            ))
        })
    }

    /// Run the closure once per device, on each device's part of `inputs`; its results are the parts of the whole
    /// results, spread as `outputs` says. Collectives inside join devices by number. It may not use values from outside.
    #[track_caller]
    pub fn per_device(
        &self,
        inputs: &[(Value, Sharding)],
        outputs: &[Sharding],
        body: impl FnOnce(&Func, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let meshes = self.module.borrow().meshes.clone();
        let values: Vec<Value> = inputs.iter().map(|(value, _)| *value).collect();
        let whole = self.types_or_scalars(&values);
        let local = |(ty, (_, sharding)): (&Type, &(Value, Sharding))| {
            sharding
                .local_dims(&meshes, &ty.dims)
                .map(|dims| ty.with_dims(dims))
        };
        let checked: Result<Vec<Type>, Fault> = whole.iter().zip(inputs).map(local).collect();
        let locals = checked.as_ref().map_or_else(|_| whole.clone(), Clone::clone);
        let shape = RegionShape {
            captures: false,
            args: &locals,
            names: None,
            terminator: "sdy.return",
        };
        let region = self.region(shape, body);
        let fallback = region.yields().map(<[Type]>::to_vec).unwrap_or_default();
        self.many(Op::ManualComputation, &values, &fallback, |operands| {
            checked?;
            let yields = region.yields()?;
            ensure!(
                yields.len() == outputs.len(),
                Yield,
                "{} results, {} shardings",
                yields.len(),
                outputs.len()
            );
            let mesh_name = inputs
                .iter()
                .map(|(_, sharding)| &sharding.mesh)
                .chain(outputs.iter().map(|each| &each.mesh))
                .next();
            let mesh = meshes.iter().find(|mesh| Some(&mesh.name) == mesh_name);
            let mesh = mesh.ok_or_else(|| Fault {
                class: Class::Attribute,
                message: "no mesh is named".to_owned(),
            })?;
            let mut results = Vec::new();
            for (part, sharding) in yields.iter().zip(outputs) {
                let mut ty = part.clone();
                ensure!(
                    sharding.dims.len() == ty.rank(),
                    Attribute,
                    "sharding {sharding} does not fit {ty}"
                );
                for (dim, axes) in ty.dims.iter_mut().zip(&sharding.dims) {
                    *dim *= axes.iter().filter_map(|axis| mesh.size(axis)).product::<i64>();
                }
                sharding.local_dims(&meshes, &ty.dims)?;
                results.push(ty);
            }
            let ins: Vec<String> = inputs.iter().map(|(_, sharding)| sharding.body()).collect();
            let outs: Vec<String> = outputs.iter().map(Sharding::body).collect();
            let axes: Vec<String> = mesh.axes.iter().map(|(axis, _)| format!("\"{axis}\"")).collect();
            let text = format!(
                "({}) in_shardings=[{}] out_shardings=[{}] manual_axes={{{}}} ({}) {} : {}",
                operands.names(),
                list(&ins),
                list(&outs),
                list(&axes),
                region.arg_list(),
                region.braces(),
                operands.signature(&results)
            );
            Ok(Built::pretty(text, results))
        })
    }
}
