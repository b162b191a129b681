//! Operations on each element by itself.

use crate::emit::{Built, dtype_fault};
use crate::error::{Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::types::DType;

/// Which element types an operation takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// Integers and wide floats.
    Number,
    /// Those and booleans.
    Any,
    /// Integers and booleans.
    Bits,
    Int,
    Float,
    /// Signed integers and wide floats.
    Signed,
}

impl Takes {
    fn check(self, dtype: DType) -> Result<(), Fault> {
        let pred = dtype == DType::Pred;
        let (holds, wanted) = match self {
            Takes::Number => (dtype.is_int() || dtype.is_wide_float(), "an integer or a wide float"),
            Takes::Any => (!dtype.is_narrow_float(), "a boolean, an integer or a wide float"),
            Takes::Bits => (dtype.is_int() || pred, "a boolean or an integer"),
            Takes::Int => (dtype.is_int(), "an integer"),
            Takes::Float => (dtype.is_wide_float(), "a wide float"),
            Takes::Signed => (dtype.is_signed() || dtype.is_wide_float(), "a signed integer or a wide float"),
        };
        if holds { Ok(()) } else { dtype_fault(dtype, wanted) }
    }
}

/// The order in which floats are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// IEEE: every comparison with NaN is false, except `ne`.
    Partial,
    /// -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN.
    Total,
}

/// What a comparison asks of its left operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Direction {
    fn mlir(self) -> &'static str {
        match self {
            Direction::Eq => "EQ",
            Direction::Ne => "NE",
            Direction::Lt => "LT",
            Direction::Le => "LE",
            Direction::Gt => "GT",
            Direction::Ge => "GE",
        }
    }
}

macro_rules! binary {
    ($($(#[$doc:meta])+ $method:ident $op:ident $takes:ident;)+) => {
        impl Func {$(
            $(#[$doc])+
            #[track_caller]
            pub fn $method(&self, a: Value, b: Value) -> Value {
                self.elementwise(Op::$op, &[a, b], Takes::$takes)
            }
        )+}
    };
}

macro_rules! unary {
    ($($(#[$doc:meta])+ $method:ident $op:ident $takes:ident;)+) => {
        impl Func {$(
            $(#[$doc])+
            #[track_caller]
            pub fn $method(&self, x: Value) -> Value {
                self.elementwise(Op::$op, &[x], Takes::$takes)
            }
        )+}
    };
}

binary! {
    /// `a + b`; integers wrap.
    add Add Number;
    /// `a - b`; integers wrap.
    sub Subtract Number;
    /// `a * b`; integers wrap.
    mul Multiply Number;
    /// `a / b`; integers round towards zero.
    div Divide Number;
    /// The larger; NaN if either is.
    max Maximum Any;
    /// The smaller; NaN if either is.
    min Minimum Any;
    /// `a` to the power of `b`.
    pow Power Number;
    /// The remainder of `a / b`, with the sign of `a`.
    rem Remainder Number;
    /// Bitwise, or of booleans.
    and And Bits;
    /// Bitwise, or of booleans.
    or Or Bits;
    /// Bitwise, or of booleans.
    xor Xor Bits;
    /// `a << b`; zero where `b` is the width or more.
    shift_left ShiftLeft Int;
    /// `a >> b`, filled with zeros.
    shift_right_logical ShiftRightLogical Int;
    /// `a >> b`, filled with the sign bit.
    shift_right_arithmetic ShiftRightArithmetic Int;
}

unary! {
    /// `-x`; integers wrap.
    neg Negate Number;
    /// The magnitude.
    abs Abs Signed;
    /// e to the power of `x`.
    exp Exponential Float;
    /// `exp(x) - 1`, accurate near zero.
    expm1 ExponentialMinusOne Float;
    /// The natural logarithm.
    log Log Float;
    /// `log(1 + x)`, accurate near zero.
    log1p LogPlusOne Float;
    /// `1 / (1 + exp(-x))`.
    logistic Logistic Float;
    /// The hyperbolic tangent.
    tanh Tanh Float;
    /// The square root.
    sqrt Sqrt Float;
    /// `1 / sqrt(x)`.
    rsqrt Rsqrt Float;
    /// Towards minus infinity.
    floor Floor Float;
    /// Towards infinity.
    ceil Ceil Float;
    /// To the nearest whole number, halves to the even one.
    round_nearest_even RoundNearestEven Float;
    /// -1, 0 or 1; zeros keep their sign and NaN stays.
    sign Sign Signed;
    /// The cosine of radians.
    cosine Cosine Float;
    /// The sine of radians.
    sine Sine Float;
    /// How many bits are set.
    popcnt Popcnt Int;
    /// Bitwise, or of booleans.
    not Not Bits;
}

macro_rules! comparison {
    ($($(#[$doc:meta])+ $method:ident $direction:ident;)+) => {
        impl Func {$(
            $(#[$doc])+
            #[track_caller]
            pub fn $method(&self, a: Value, b: Value) -> Value {
                self.compare(Direction::$direction, a, b, Order::Partial)
            }
        )+}
    };
}

comparison! {
    /// `a == b`, as booleans.
    eq Eq;
    /// `a != b`, as booleans.
    ne Ne;
    /// `a < b`, as booleans.
    lt Lt;
    /// `a <= b`, as booleans.
    le Le;
    /// `a > b`, as booleans.
    gt Gt;
    /// `a >= b`, as booleans.
    ge Ge;
}

impl Func {
    #[track_caller]
    fn elementwise(&self, op: Op, operands: &[Value], takes: Takes) -> Value {
        self.one(op, operands, |operands| {
            let ty = operands.all_equal()?.clone();
            takes.check(ty.dtype)?;
            Ok(operands.same(ty))
        })
    }

    /// Compare in a direction, with floats in the given order; booleans come out.
    #[track_caller]
    pub fn compare(&self, direction: Direction, a: Value, b: Value, order: Order) -> Value {
        self.one(Op::Compare, &[a, b], |operands| {
            let ty = operands.all_equal()?.clone();
            Takes::Any.check(ty.dtype)?;
            let kind = match (ty.dtype.is_float(), ty.dtype.is_signed()) {
                (true, _) if order == Order::Total => "TOTALORDER",
                (true, _) => "FLOAT",
                (_, true) => "SIGNED",
                _ => "UNSIGNED",
            };
            let results = vec![ty.with_dtype(DType::Pred)];
            let signature = operands.signature(&results);
            Ok(Built::pretty(
                format!(" {}, {}, {kind} : {signature}", direction.mlir(), operands.names()),
                results,
            ))
        })
    }

    /// Whether each float is neither infinite nor NaN.
    #[track_caller]
    pub fn is_finite(&self, x: Value) -> Value {
        self.one(Op::IsFinite, &[x], |operands| {
            Takes::Float.check(operands.types[0].dtype)?;
            let results = vec![operands.types[0].with_dtype(DType::Pred)];
            Ok(Built::pretty(format!(" {} : {}", operands.names(), operands.signature(&results)), results))
        })
    }

    /// `on_true` where `pred` holds, else `on_false`. `pred` is a scalar or has their shape.
    #[track_caller]
    pub fn select(&self, pred: Value, on_true: Value, on_false: Value) -> Value {
        let fallback = self.type_or_scalar(on_true);
        self.many(Op::Select, &[pred, on_true, on_false], &[fallback], |operands| {
            let [pred, yes, no] = operands.array()?;
            ensure!(pred.dtype == DType::Pred, Dtype, "the predicate is {}, not i1", pred.dtype);
            ensure!(yes == no, Shape, "the two choices differ");
            ensure!(
                pred.rank() == 0 || pred.dims == yes.dims,
                Shape,
                "the predicate's shape is not the choices'"
            );
            let body = format!(" {} : {pred}, {yes}", operands.names());
            Ok(Built::pretty(body, vec![yes.clone()]))
        })[0]
    }

    /// `x` held between `low` and `high`, which are scalars or have its shape.
    #[track_caller]
    pub fn clamp(&self, low: Value, x: Value, high: Value) -> Value {
        let fallback = self.type_or_scalar(x);
        self.many(Op::Clamp, &[low, x, high], &[fallback], |operands| {
            let [low, x, high] = operands.array()?;
            Takes::Any.check(x.dtype)?;
            for bound in [low, high] {
                ensure!(bound.dtype == x.dtype, Dtype, "a bound is {}, not {}", bound.dtype, x.dtype);
                ensure!(bound.rank() == 0 || bound.dims == x.dims, Shape, "a bound {bound} does not fit {x}");
            }
            let result = x.clone();
            Ok(operands.same(result))
        })[0]
    }

    /// `x` with its elements converted: floats round to nearest even, to integers they are truncated, booleans are 0
    /// or 1, and anything but zero is true. To its own type it is `x` itself.
    #[track_caller]
    pub fn convert(&self, x: Value, dtype: DType) -> Value {
        if self.type_or_scalar(x).dtype == dtype {
            return x;
        }
        self.one(Op::Convert, &[x], |operands| {
            let result = operands.types[0].with_dtype(dtype);
            Ok(operands.same(result))
        })
    }
}
