//! Random bits from a key and a counter.

use crate::emit::Built;
use crate::error::ensure;
use crate::func::{Func, Value};
use crate::op::Op;
use crate::types::{DType, Type};

/// A counter-based generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RngAlgorithm {
    /// Threefry 2x32: state `[key, counter]`, two U64. The same bits on every backend.
    ThreeFry,
    /// Philox 4x32: state of two or three U64. The same bits on every backend.
    Philox,
}

impl Func {
    /// The next state, and random bits of the unsigned integer type `ty`. State and type alone decide the bits.
    #[track_caller]
    pub fn rng_bit_generator(&self, state: Value, ty: Type, algorithm: RngAlgorithm) -> (Value, Value) {
        let fallback = [self.type_or_scalar(state), ty.clone()];
        let results = self.many(Op::RngBitGenerator, &[state], &fallback, |operands| {
            let state = operands.types[0].clone();
            let (name, lengths) = match algorithm {
                RngAlgorithm::ThreeFry => ("THREE_FRY", 2..=2),
                RngAlgorithm::Philox => ("PHILOX", 2..=3),
            };
            let sound = state.dtype == DType::U64 && state.rank() == 1 && lengths.contains(&state.dims[0]);
            ensure!(sound, Shape, "the state of {name} is {state}");
            ensure!(ty.dtype.is_unsigned(), Dtype, "random bits come as unsigned integers, not {}", ty.dtype);
            let results = vec![state, ty];
            let signature = operands.signature(&results);
            Ok(Built::pretty(format!(" {}, algorithm = {name} : {signature}", operands.names()), results))
        });
        (results[0], results[1])
    }
}
