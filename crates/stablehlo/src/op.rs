//! The operations this room can print.

macro_rules! ops {
    ($($name:ident $mnemonic:literal,)+) => {
        /// An operation. [`Op::ALL`] exists so that a test can demand that each one has been run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Op { $($name,)+ }

        impl Op {
            pub const ALL: &'static [Op] = &[$(Op::$name,)+];

            /// The operation's name in the text, such as `stablehlo.add`.
            pub fn mnemonic(self) -> &'static str {
                match self { $(Op::$name => $mnemonic,)+ }
            }
        }
    };
}

ops! {
    Abs "stablehlo.abs",
    Add "stablehlo.add",
    AllGather "stablehlo.all_gather",
    AllReduce "stablehlo.all_reduce",
    AllToAll "stablehlo.all_to_all",
    And "stablehlo.and",
    BitcastConvert "stablehlo.bitcast_convert",
    BroadcastInDim "stablehlo.broadcast_in_dim",
    Call "func.call",
    Case "stablehlo.case",
    Ceil "stablehlo.ceil",
    Clamp "stablehlo.clamp",
    CollectivePermute "stablehlo.collective_permute",
    Compare "stablehlo.compare",
    Composite "stablehlo.composite",
    Concatenate "stablehlo.concatenate",
    Constant "stablehlo.constant",
    Convert "stablehlo.convert",
    Cosine "stablehlo.cosine",
    CustomCall "stablehlo.custom_call",
    Divide "stablehlo.divide",
    DotGeneral "stablehlo.dot_general",
    DynamicSlice "stablehlo.dynamic_slice",
    DynamicUpdateSlice "stablehlo.dynamic_update_slice",
    Exponential "stablehlo.exponential",
    ExponentialMinusOne "stablehlo.exponential_minus_one",
    Floor "stablehlo.floor",
    Gather "stablehlo.gather",
    If "stablehlo.if",
    Iota "stablehlo.iota",
    IsFinite "stablehlo.is_finite",
    Log "stablehlo.log",
    LogPlusOne "stablehlo.log_plus_one",
    Logistic "stablehlo.logistic",
    ManualComputation "sdy.manual_computation",
    Maximum "stablehlo.maximum",
    Minimum "stablehlo.minimum",
    Multiply "stablehlo.multiply",
    Negate "stablehlo.negate",
    Not "stablehlo.not",
    OptimizationBarrier "stablehlo.optimization_barrier",
    Or "stablehlo.or",
    Pad "stablehlo.pad",
    Popcnt "stablehlo.popcnt",
    Power "stablehlo.power",
    Reduce "stablehlo.reduce",
    ReduceScatter "stablehlo.reduce_scatter",
    ReduceWindow "stablehlo.reduce_window",
    Remainder "stablehlo.remainder",
    Reshape "stablehlo.reshape",
    Reverse "stablehlo.reverse",
    RngBitGenerator "stablehlo.rng_bit_generator",
    RoundNearestEven "stablehlo.round_nearest_even",
    Rsqrt "stablehlo.rsqrt",
    Scatter "stablehlo.scatter",
    Select "stablehlo.select",
    ShardingConstraint "sdy.sharding_constraint",
    ShiftLeft "stablehlo.shift_left",
    ShiftRightArithmetic "stablehlo.shift_right_arithmetic",
    ShiftRightLogical "stablehlo.shift_right_logical",
    Sign "stablehlo.sign",
    Sine "stablehlo.sine",
    Slice "stablehlo.slice",
    Sort "stablehlo.sort",
    Sqrt "stablehlo.sqrt",
    Subtract "stablehlo.subtract",
    Tanh "stablehlo.tanh",
    TopK "chlo.top_k",
    Transpose "stablehlo.transpose",
    TriangularSolve "stablehlo.triangular_solve",
    While "stablehlo.while",
    Xor "stablehlo.xor",
}
