//! A part of the program written as one device sees it.

use crate::emit::Built;
use crate::error::{Class, Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::print::list;
use crate::region::RegionShape;
use crate::sharding::{Mesh, Sharding};
use crate::types::Type;

impl Func {
    /// Run the closure once per device, on each device's part of `inputs`; its results are the parts of the whole
    /// results, spread as `outputs` says. All shardings name one mesh. Collectives inside join devices by number. It may
    /// not use values from outside.
    #[track_caller]
    pub fn per_device(
        &self,
        inputs: &[(Value, Sharding)],
        outputs: &[Sharding],
        body: impl FnOnce(&Func, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let meshes = self.module.borrow().meshes.clone();
        let values: Vec<Value> = inputs.iter().map(|(value, _)| *value).collect();
        let ins: Vec<&Sharding> = inputs.iter().map(|(_, sharding)| sharding).collect();
        let whole = self.types_or_scalars(&values);
        let parts: Result<Vec<Type>, Fault> =
            whole.iter().zip(&ins).map(|(ty, sharding)| sharding.part(&meshes, ty)).collect();
        let parts_or_whole = parts.as_ref().map_or_else(|_| whole.clone(), Clone::clone);
        let shape =
            RegionShape { captures: false, args: &parts_or_whole, names: None, terminator: "sdy.return" };
        let region = self.region(shape, body);
        let fallback = region.yields().map(<[Type]>::to_vec).unwrap_or_default();
        self.many(Op::ManualComputation, &values, &fallback, |operands| {
            parts?;
            let outs: Vec<&Sharding> = outputs.iter().collect();
            let mesh = one_mesh(&meshes, &[&ins[..], &outs[..]].concat())?;
            let yields = region.yields()?;
            let (given, wanted) = (yields.len(), outs.len());
            ensure!(given == wanted, Yield, "{given} values are yielded for {wanted} shardings");
            let results: Result<Vec<Type>, Fault> =
                yields.iter().zip(&outs).map(|(ty, sharding)| sharding.whole(&meshes, ty)).collect();
            let results = results?;
            let bodies =
                |shardings: &[&Sharding]| list(&shardings.iter().map(|each| each.body()).collect::<Vec<_>>());
            let axes: Vec<String> = mesh.axes.iter().map(|(axis, _)| format!("\"{axis}\"")).collect();
            let text = format!(
                "({}) in_shardings=[{}] out_shardings=[{}] manual_axes={{{}}} ({}) {} : {}",
                operands.names(),
                bodies(&ins),
                bodies(&outs),
                list(&axes),
                region.arg_list(),
                region.braces(),
                operands.signature(&results)
            );
            Ok(Built::pretty(text, results))
        })
    }
}

fn one_mesh<'a>(meshes: &'a [Mesh], shardings: &[&Sharding]) -> Result<&'a Mesh, Fault> {
    let name = shardings.first().map(|sharding| &sharding.mesh);
    let one = shardings.iter().all(|sharding| Some(&sharding.mesh) == name);
    ensure!(one, Attribute, "the shardings name several meshes");
    meshes.iter().find(|mesh| Some(&mesh.name) == name).ok_or_else(|| Fault {
        class: Class::Attribute,
        message: "no sharding names a mesh of the module".to_owned(),
    })
}
