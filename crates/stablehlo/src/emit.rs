//! How an operation gets from a checked call into the text.

use std::fmt::Write as _;
use std::panic::Location;

use crate::error::{Class, Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::print::list;
use crate::types::{DType, Type};

/// The operands of a call, looked up.
#[derive(Debug)]
pub(crate) struct Operands {
    pub(crate) names: Vec<String>,
    pub(crate) types: Vec<Type>,
}

impl Operands {
    /// `%1, %2`.
    pub(crate) fn names(&self) -> String {
        list(&self.names)
    }

    /// `(tensor<f32>, tensor<f32>) -> tensor<f32>`.
    pub(crate) fn signature(&self, results: &[Type]) -> String {
        let results = match results {
            [one] => one.to_string(),
            many => format!("({})", list(many)),
        };
        format!("({}) -> {results}", list(&self.types))
    }

    /// The types, when there are exactly `N`.
    pub(crate) fn array<const N: usize>(&self) -> Result<&[Type; N], Fault> {
        let wrong =
            |_| Fault { class: Class::Shape, message: format!("{} operands, not {N}", self.types.len()) };
        self.types.as_slice().try_into().map_err(wrong)
    }

    /// All operands have the type of the first.
    pub(crate) fn all_equal(&self) -> Result<&Type, Fault> {
        let first = &self.types[0];
        ensure!(self.types.iter().all(|ty| ty.dims == first.dims), Shape, "operands differ in shape");
        ensure!(
            self.types.iter().all(|ty| ty.dtype == first.dtype),
            Dtype,
            "operands differ in element type"
        );
        Ok(first)
    }

    /// `%1, %2 : tensor<f32>`: the pretty form of what has one type throughout, or the same with a full signature.
    pub(crate) fn same(self, result: Type) -> Built {
        let alike = self.types.iter().all(|ty| *ty == result);
        let types = if alike { result.to_string() } else { self.signature(std::slice::from_ref(&result)) };
        Built::pretty(format!(" {} : {types}", self.names()), vec![result])
    }
}

/// A checked operation: what follows its mnemonic, and its results' types.
#[derive(Debug)]
pub(crate) struct Built {
    quoted: bool,
    body: String,
    results: Vec<Type>,
}

impl Built {
    /// The operation's own syntax: `stablehlo.add %1, %2 : tensor<f32>`.
    pub(crate) fn pretty(body: String, results: Vec<Type>) -> Self {
        Built { quoted: false, body, results }
    }

    /// MLIR's generic syntax: `"stablehlo.gather"(%1, %2) <{...}> ({...}) : ...`.
    pub(crate) fn generic(
        operands: &Operands,
        attrs: &[String],
        regions: &[String],
        results: Vec<Type>,
    ) -> Self {
        let mut body = format!("({})", operands.names());
        if !attrs.is_empty() {
            let _ = write!(body, " <{{{}}}>", attrs.join(", "));
        }
        if !regions.is_empty() {
            let _ = write!(body, " ({})", regions.join(", "));
        }
        let _ = write!(body, " : {}", operands.signature(&results));
        Built { quoted: true, body, results }
    }
}

impl Func {
    /// Build an operation of one result. After a fault the result has the first operand's type.
    #[track_caller]
    pub(crate) fn one(
        &self,
        op: Op,
        operands: &[Value],
        build: impl FnOnce(Operands) -> Result<Built, Fault>,
    ) -> Value {
        let fallback =
            operands.first().map(|&first| self.type_or_scalar(first)).unwrap_or_else(|| DType::F32.scalar());
        self.many(op, operands, &[fallback], build)[0]
    }

    /// Build an operation of any number of results. After a fault the results have the fallback's types.
    #[track_caller]
    pub(crate) fn many(
        &self,
        op: Op,
        operands: &[Value],
        fallback: &[Type],
        build: impl FnOnce(Operands) -> Result<Built, Fault>,
    ) -> Vec<Value> {
        let location = Location::caller();
        let looked_up = self.check_open().and_then(|()| self.look_up(operands));
        let Some(looked_up) = self.note(op.mnemonic(), location, looked_up, &[]) else {
            return self.placeholders(fallback);
        };
        let (names, types): (Vec<_>, Vec<_>) = looked_up.into_iter().unzip();
        let shown = types.clone();
        let built = build(Operands { names, types });
        match self.note(op.mnemonic(), location, built, &shown) {
            Some(built) => self.emit(op, built),
            None => self.placeholders(fallback),
        }
    }

    /// The type of a value, visible or not.
    pub(crate) fn type_or_scalar(&self, value: Value) -> Type {
        let state = self.state.borrow();
        let slot = state.slots.get(value.index as usize).filter(|_| value.func == state.id);
        slot.map_or_else(|| DType::F32.scalar(), |slot| slot.ty.clone())
    }

    /// Types for results after a fault: those of `values`.
    pub(crate) fn types_or_scalars(&self, values: &[Value]) -> Vec<Type> {
        values.iter().map(|&value| self.type_or_scalar(value)).collect()
    }

    fn check_open(&self) -> Result<(), Fault> {
        let state = self.state.borrow();
        ensure!(state.outputs.is_none(), Signature, "{} has already returned", state.name);
        Ok(())
    }

    fn placeholders(&self, types: &[Type]) -> Vec<Value> {
        let mut state = self.state.borrow_mut();
        types.iter().map(|ty| state.new_slot("%?".to_owned(), ty.clone())).collect()
    }

    fn emit(&self, op: Op, built: Built) -> Vec<Value> {
        let Built { quoted, body, results } = built;
        let number = self.state.borrow_mut().number();
        let quote = if quoted { "\"" } else { "" };
        let loc = self.module.borrow().loc();
        let target = match results.len() {
            0 => String::new(),
            1 => format!("%{number} = "),
            many => format!("%{number}:{many} = "),
        };
        self.line(&format!("{target}{quote}{}{quote}{body}{loc}", op.mnemonic()));
        let single = results.len() == 1;
        let mut state = self.state.borrow_mut();
        let name = |at| {
            if single { format!("%{number}") } else { format!("%{number}#{at}") }
        };
        results.into_iter().enumerate().map(|(at, ty)| state.new_slot(name(at), ty)).collect()
    }

    /// Append a line to the innermost open block.
    pub(crate) fn line(&self, text: &str) {
        let mut state = self.state.borrow_mut();
        let depth = state.blocks.len() + 1;
        if let Some(block) = state.blocks.last_mut() {
            let _ = writeln!(block.text, "{:1$}{text}", "", depth * 2);
        }
    }
}

/// Every axis is below `rank` and none comes twice.
pub(crate) fn check_axes(what: &str, axes: &[usize], rank: usize) -> Result<(), Fault> {
    for (at, axis) in axes.iter().enumerate() {
        ensure!(*axis < rank, Axis, "{what} {axis} is out of range for rank {rank}");
        ensure!(!axes[..at].contains(axis), Axis, "{what} {axis} is named twice");
    }
    Ok(())
}

/// A refusal of an element type.
pub(crate) fn dtype_fault<T>(dtype: DType, wanted: &str) -> Result<T, Fault> {
    Err(Fault { class: Class::Dtype, message: format!("{dtype} is not {wanted}") })
}
