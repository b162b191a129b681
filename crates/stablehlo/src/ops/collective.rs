//! Work spread over devices: shardings, and what devices say to each other.

use crate::emit::Built;
use crate::error::{Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::ops::reduce::Reducer;
use crate::print::matrix;
use crate::region::Region;
use crate::sharding::Sharding;

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
        ensure!(even, Attribute, "replica groups must be of one size, and not empty");
        let mut members = groups.concat();
        members.sort_unstable();
        let distinct = members.windows(2).all(|pair| pair[0] != pair[1]) && members[0] >= 0;
        ensure!(distinct, Attribute, "replica groups name a device twice, or a negative one");
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
                vec![format!("channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>")]
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
            ensure!(axis < result.rank(), Axis, "axis {axis} is out of range for {result}");
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
            ensure!(axis < result.rank(), Axis, "axis {axis} is out of range for {result}");
            let dim = result.dims[axis];
            ensure!(dim % size == 0, Shape, "a group of {size} does not divide axis {axis} of {result}");
            result.dims[axis] = dim / size;
            attrs.push(format!("scatter_dimension = {axis} : i64"));
            Ok(Built::generic(&operands, &attrs, &[region.labelled()], vec![result]))
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
    fn reducer_region(&self, x: Value, reducer: Reducer) -> Region {
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
            sharding.part(&self.module.borrow().meshes, &ty)?;
            Ok(Built::pretty(format!(" {} {} : {ty}", operands.names(), sharding.body()), vec![ty]))
        })
    }
}
