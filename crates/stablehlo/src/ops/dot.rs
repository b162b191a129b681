//! Products of matrices, and triangular systems.

use crate::emit::{Built, check_axes};
use crate::error::{Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::print::list;
use crate::types::{DType, Type};

/// How exactly a product of floats is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// As fast as the device can: on TPU, f32 operands are rounded to bf16.
    #[default]
    Default,
    High,
    /// f32 operands are multiplied as f32.
    Highest,
}

impl Precision {
    fn mlir(self) -> &'static str {
        match self {
            Precision::Default => "DEFAULT",
            Precision::High => "HIGH",
            Precision::Highest => "HIGHEST",
        }
    }
}

/// Which dimensions of two tensors are multiplied, which run along, and into what.
///
/// The result's dimensions are the batch ones, then the free ones of the left, then the free ones of the right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dot {
    pub lhs_batch: Vec<usize>,
    pub rhs_batch: Vec<usize>,
    pub lhs_contract: Vec<usize>,
    pub rhs_contract: Vec<usize>,
    pub precision: Precision,
    /// The result's element type; the operands' if none.
    pub out: Option<DType>,
}

impl Dot {
    /// Sum over these dimensions, paired in order.
    pub fn contract<const N: usize>(lhs: [usize; N], rhs: [usize; N]) -> Self {
        Dot { lhs_contract: lhs.to_vec(), rhs_contract: rhs.to_vec(), ..Dot::default() }
    }

    /// Run along these dimensions, paired in order.
    pub fn batch<const N: usize>(mut self, lhs: [usize; N], rhs: [usize; N]) -> Self {
        self.lhs_batch = lhs.to_vec();
        self.rhs_batch = rhs.to_vec();
        self
    }

    /// Accumulate and return this element type.
    pub fn out(mut self, dtype: DType) -> Self {
        self.out = Some(dtype);
        self
    }

    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    fn infer(&self, lhs: &Type, rhs: &Type) -> Result<Type, Fault> {
        let narrow = [DType::F4E2M1FN, DType::F8E8M0FNU, DType::Pred];
        let takes = lhs.dtype == rhs.dtype && !narrow.contains(&lhs.dtype);
        ensure!(takes, Dtype, "{} and {} cannot be multiplied", lhs.dtype, rhs.dtype);
        let out = self.out.unwrap_or(lhs.dtype);
        let sound = out.is_wide_float() == lhs.dtype.is_float() && out.bits() >= lhs.dtype.bits();
        ensure!(sound, Dtype, "products of {} cannot be summed in {out}", lhs.dtype);
        let mut dims = Vec::new();
        for (what, left, right) in [
            ("batch", &self.lhs_batch, &self.rhs_batch),
            ("contracting", &self.lhs_contract, &self.rhs_contract),
        ] {
            ensure!(
                left.len() == right.len(),
                Axis,
                "{what} dimensions {left:?} and {right:?} do not pair up"
            );
            let used = |batch: &[usize], own: &[usize]| [batch, own].concat();
            let (left_used, right_used) = match what {
                "batch" => (left.clone(), right.clone()),
                _ => (used(&self.lhs_batch, left), used(&self.rhs_batch, right)),
            };
            check_axes("left axis", &left_used, lhs.rank())?;
            check_axes("right axis", &right_used, rhs.rank())?;
            for (&l, &r) in left.iter().zip(right) {
                let (a, b) = (lhs.dims[l], rhs.dims[r]);
                ensure!(a == b, Shape, "{what} dimensions differ: axis {l} is {a}, axis {r} is {b}");
                if what == "batch" {
                    dims.push(a);
                }
            }
        }
        let free = |ty: &Type, batch: &[usize], contract: &[usize]| -> Vec<i64> {
            let kept = (0..ty.rank()).filter(|axis| !batch.contains(axis) && !contract.contains(axis));
            kept.map(|axis| ty.dims[axis]).collect()
        };
        dims.extend(free(lhs, &self.lhs_batch, &self.lhs_contract));
        dims.extend(free(rhs, &self.rhs_batch, &self.rhs_contract));
        Ok(out.tensor(dims))
    }
}

/// Which triangle of the matrix in a triangular system is read, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triangular {
    /// Solve `a x = b` rather than `x a = b`.
    pub left_side: bool,
    /// Read the lower triangle rather than the upper.
    pub lower: bool,
    /// Take the diagonal as ones, unread.
    pub unit_diagonal: bool,
    /// Use the transpose of `a`.
    pub transpose: bool,
}

impl Func {
    /// The general product; see [`Dot`].
    #[track_caller]
    pub fn dot_general(&self, lhs: Value, rhs: Value, dot: &Dot) -> Value {
        self.one(Op::DotGeneral, &[lhs, rhs], |operands| {
            let result = dot.infer(&operands.types[0], &operands.types[1])?;
            let batching = match dot.lhs_batch.is_empty() {
                true => String::new(),
                false => format!("batching_dims = [{}] x [{}], ", list(&dot.lhs_batch), list(&dot.rhs_batch)),
            };
            let contracting =
                format!("contracting_dims = [{}] x [{}]", list(&dot.lhs_contract), list(&dot.rhs_contract));
            let precision = dot.precision.mlir();
            let results = vec![result];
            let signature = operands.signature(&results);
            let names = operands.names();
            let body = format!(
                " {names}, {batching}{contracting}, precision = [{precision}, {precision}] : {signature}"
            );
            Ok(Built::pretty(body, results))
        })
    }

    /// `x [..., in]` times the weights `w [out, in]`: `[..., out]`.
    #[track_caller]
    pub fn linear(&self, x: Value, w: Value) -> Value {
        let last = |value| self.type_or_scalar(value).rank().saturating_sub(1);
        self.dot_general(x, w, &Dot::contract([last(x)], [last(w)]))
    }

    /// `a [batch..., m, k]` times `b [batch..., k, n]`: `[batch..., m, n]`, with equal batch dimensions.
    #[track_caller]
    pub fn matmul(&self, a: Value, b: Value) -> Value {
        let (rank_a, rank_b) = (self.type_or_scalar(a).rank(), self.type_or_scalar(b).rank());
        let batch: Vec<usize> = (0..rank_a.saturating_sub(2)).collect();
        let mut dot = Dot::contract([rank_a.saturating_sub(1)], [rank_b.saturating_sub(2)]);
        dot.rhs_batch = (0..rank_b.saturating_sub(2)).collect();
        dot.lhs_batch = batch;
        self.dot_general(a, b, &dot)
    }

    /// Solve for `x` in `a x = b` (or `x a = b`), `a [batch..., m, m]` triangular and `b [batch..., m, n]`.
    #[track_caller]
    pub fn triangular_solve(&self, a: Value, b: Value, how: Triangular) -> Value {
        let fallback = self.type_or_scalar(b);
        self.many(Op::TriangularSolve, &[a, b], &[fallback], |operands| {
            let [a, b] = operands.array()?;
            let wide = matches!(a.dtype, DType::F32 | DType::F64) && a.dtype == b.dtype;
            ensure!(wide, Dtype, "a triangular system is of f32 or f64 throughout");
            let rank = a.rank();
            ensure!(
                rank >= 2 && b.rank() == rank,
                Shape,
                "both must be matrices under equal batch dimensions"
            );
            let size = a.dims[rank - 1];
            let side = if how.left_side { rank - 2 } else { rank - 1 };
            let fits =
                a.dims[rank - 2] == size && b.dims[side] == size && a.dims[..rank - 2] == b.dims[..rank - 2];
            ensure!(fits, Shape, "the system's shapes do not fit");
            let transpose = if how.transpose { "TRANSPOSE" } else { "NO_TRANSPOSE" };
            let attrs = [
                format!("left_side = {}", how.left_side),
                format!("lower = {}", how.lower),
                format!("transpose_a = #stablehlo<transpose {transpose}>"),
                format!("unit_diagonal = {}", how.unit_diagonal),
            ];
            let results = vec![b.clone()];
            Ok(Built::generic(&operands, &attrs, &[], results))
        })[0]
    }
}
