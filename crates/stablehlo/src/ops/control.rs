//! Loops and choices.

use crate::emit::Built;
use crate::error::ensure;
use crate::func::{Func, Value};
use crate::op::Op;
use crate::print::list;
use crate::region::Region;
use crate::types::{DType, Type};

/// One way a [`Func::case`] can go.
pub type Branch<'a> = &'a dyn Fn(&Func) -> Vec<Value>;

impl Func {
    /// Carry `init` through `body` while `cond`, a scalar i1 of the carried values, is true; returns what is carried at
    /// the end. Both closures may use values from outside.
    #[track_caller]
    pub fn while_loop(
        &self,
        init: &[Value],
        cond: impl FnOnce(&Func, &[Value]) -> Value,
        body: impl FnOnce(&Func, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let carried = self.types_or_scalars(init);
        let cond = self.open_region(&carried, None, |f, values| vec![cond(f, values)]);
        // One list of names is printed for both regions.
        let body = self.open_region(&carried, Some(&cond.args), body);
        self.many(Op::While, init, &carried, |operands| {
            ensure!(!carried.is_empty(), Shape, "the loop carries nothing");
            cond.must_yield("the condition", &[DType::Pred.scalar()])?;
            body.must_yield("the body", &carried)?;
            let pairs = cond.args.iter().zip(&operands.names);
            let bindings: Vec<String> = pairs.map(|((arg, _), from)| format!("{arg} = {from}")).collect();
            let (bindings, types) = (list(&bindings), list(&carried));
            let text = format!("({bindings}) : {types} cond {} do {}", cond.braces(), body.braces());
            Ok(Built::pretty(text, carried.clone()))
        })
    }

    /// Run `body` for `index` = 0, 1, ..., `count - 1`, an S32 scalar; the closure takes the index and the carried values and
    /// returns the new carried values.
    #[track_caller]
    pub fn repeat(
        &self,
        count: i32,
        init: &[Value],
        body: impl FnOnce(&Func, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let carried = [&[self.scalar(0i32)], init].concat();
        let results = self.while_loop(
            &carried,
            |f, values| f.lt(values[0], f.scalar(count)),
            |f, values| {
                let next = f.add(values[0], f.scalar(1i32));
                let mut carried = vec![next];
                carried.extend(body(f, values[0], &values[1..]));
                carried
            },
        );
        results[1..].to_vec()
    }

    /// The values of the first closure where the scalar `pred` is true, else those of the second. Only one is run.
    /// Both may use values from outside.
    #[track_caller]
    pub fn if_else(
        &self,
        pred: Value,
        on_true: impl FnOnce(&Func) -> Vec<Value>,
        on_false: impl FnOnce(&Func) -> Vec<Value>,
    ) -> Vec<Value> {
        let branches =
            [self.open_region(&[], None, |f, _| on_true(f)), self.open_region(&[], None, |f, _| on_false(f))];
        self.choose(Op::If, pred, DType::Pred, &branches)
    }

    /// The values of the closure at the scalar S32 `index`; of the last one if the index is out of range. Only one is
    /// run. All may use values from outside.
    #[track_caller]
    pub fn case(&self, index: Value, branches: &[Branch<'_>]) -> Vec<Value> {
        let branches: Vec<Region> =
            branches.iter().map(|branch| self.open_region(&[], None, |f, _| branch(f))).collect();
        self.choose(Op::Case, index, DType::S32, &branches)
    }

    #[track_caller]
    fn choose(&self, op: Op, selector: Value, dtype: DType, branches: &[Region]) -> Vec<Value> {
        let first = branches.first().and_then(|branch| branch.yields().ok());
        let expected: Vec<Type> = first.map(<[Type]>::to_vec).unwrap_or_default();
        self.many(op, &[selector], &expected, |operands| {
            let given = &operands.types[0];
            ensure!(*given == dtype.scalar(), Dtype, "the selector is {given}, not a scalar {dtype}");
            ensure!(!branches.is_empty(), Shape, "there is no branch to choose");
            for (at, branch) in branches.iter().enumerate() {
                branch.must_yield(&format!("branch {at}"), &expected)?;
            }
            let regions: Vec<String> = branches.iter().map(Region::braces).collect();
            Ok(Built::generic(&operands, &[], &regions, expected.clone()))
        })
    }

    /// The values themselves, which the compiler may not compute earlier or later than together.
    #[track_caller]
    pub fn optimization_barrier(&self, values: &[Value]) -> Vec<Value> {
        self.many(Op::OptimizationBarrier, values, &self.types_or_scalars(values), |operands| {
            ensure!(!operands.types.is_empty(), Shape, "there is nothing to hold");
            let types = list(&operands.types);
            Ok(Built::pretty(format!(" {} : {types}", operands.names()), operands.types))
        })
    }
}
