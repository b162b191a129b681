//! Each class of wrong call says which operation, which shapes, and where.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use stablehlo::{
    ArgAttrs, Class, DType, Dot, Error, Func, Mesh, Module, Reducer, Sharding, Type, Update, Value,
};

struct Args {
    /// `[2, 3]` F32.
    x: Value,
    /// `[3]` F32.
    v: Value,
    /// `[4]` S32.
    i: Value,
    p: Value,
}

/// A function with a few arguments, built wrongly by `wrong`, which returns the line of the wrong call.
fn error(wrong: impl FnOnce(&Func, &Args) -> u32) -> (Error, u32) {
    let module = Module::new("wrong");
    module.mesh(Mesh::new("mesh", [("data", 2)]));
    let f = module.main();
    let args = Args {
        x: f.input("x", DType::F32.tensor([2, 3])),
        v: f.input("v", DType::F32.tensor([3])),
        i: f.input("i", DType::S32.tensor([4])),
        p: f.input("p", DType::Pred.scalar()),
    };
    let line = wrong(&f, &args);
    f.ret(&[]);
    (module.finish().expect_err("the call is wrong"), line)
}

type Case = (Class, &'static str, &'static [&'static str], fn(&Func, &Args) -> u32);

/// Class, operation, parts of the message, and the wrong call.
const CASES: &[Case] = &[
    (Class::Shape, "stablehlo.add", &["tensor<2x3xf32>, tensor<3xf32>"], |f, a| at(line!(), f.add(a.x, a.v))),
    (Class::Shape, "stablehlo.reshape", &["tensor<2x3xf32>", "tensor<4xf32>"], |f, a| {
        at(line!(), f.reshape(a.x, &[4]))
    }),
    (Class::Shape, "stablehlo.slice", &["1..5", "dimension 1"], |f, a| {
        at(line!(), f.slice_axis(a.x, 1, 1, 5))
    }),
    (Class::Shape, "stablehlo.dot_general", &["axis 0 is 2, axis 0 is 3"], |f, a| {
        at(line!(), f.dot_general(a.x, a.v, &Dot::contract([0], [0])))
    }),
    (Class::Shape, "stablehlo.broadcast_in_dim", &["3", "axis 0", "tensor<2x3xf32>"], |f, a| {
        at(line!(), f.broadcast_like(a.v, a.x, &[0]))
    }),
    (Class::Shape, "stablehlo.scatter", &["axis 1 of the updates is 3", "2"], |f, a| {
        let table = f.splat(0f32, &[9, 2]);
        let rows = f.splat(1f32, &[4, 3]);
        at(line!(), f.scatter_rows(table, a.i, rows, Update::Replace))
    }),
    (Class::Shape, "stablehlo.constant", &["3 elements", "tensor<2x2xi32>"], |f, _| {
        at(line!(), f.constant(&[1i32, 2, 3], &[2, 2]))
    }),
    (Class::Dtype, "stablehlo.exponential", &["i32 is not a wide float", "tensor<4xi32>"], |f, a| {
        at(line!(), f.exp(a.i))
    }),
    (Class::Dtype, "stablehlo.gather", &["indices are f32"], |f, a| at(line!(), f.take_rows(a.x, a.v))),
    (Class::Dtype, "stablehlo.select", &["the predicate is f32"], |f, a| {
        at(line!(), f.select(a.v, a.v, a.v))
    }),
    (Class::Dtype, "stablehlo.reduce", &["i1 cannot be reduced by stablehlo.add"], |f, a| {
        let flags = f.gt(a.v, a.v);
        at(line!(), f.reduce(flags, a.p, &[0], Reducer::Add))
    }),
    (Class::Axis, "stablehlo.transpose", &["axis 0 is named twice"], |f, a| {
        at(line!(), f.transpose(a.x, &[0, 0]))
    }),
    (Class::Axis, "stablehlo.reduce", &["axis 2 is out of range for rank 2"], |f, a| {
        at(line!(), f.sum(a.x, &[2]))
    }),
    (Class::Axis, "dim", &["axis 5", "tensor<3xf32>"], |f, a| at(line!(), f.dim(a.v, 5))),
    (Class::Attribute, "stablehlo.constant", &["1.5 does not fit i32"], |f, a| {
        at(line!(), f.splat_like(a.i, 1.5))
    }),
    (Class::Attribute, "sdy.sharding_constraint", &["no axis \"expert\""], |f, a| {
        at(line!(), f.with_sharding(a.x, &Sharding::split("mesh", 2, 0, "expert")))
    }),
    (Class::Attribute, "arg", &["dimension of 3 in 2"], |f, _| {
        let odd = Sharding::split("mesh", 1, 0, "data");
        at(line!(), f.arg("odd", DType::F32.tensor([3]), ArgAttrs::new().sharding(odd)))
    }),
    (Class::Yield, "stablehlo.while", &["the body yields (tensor<4xi32>), not (tensor<3xf32>)"], |f, a| {
        at(line!(), f.while_loop(&[a.v], |_, _| a.p, |_, _| vec![a.i]))
    }),
    (Class::Yield, "stablehlo.if", &["branch 1 yields (tensor<4xi32>), not (tensor<3xf32>)"], |f, a| {
        at(line!(), f.if_else(a.p, |_| vec![a.v], |_| vec![a.i]))
    }),
    (Class::Visibility, "stablehlo.reduce", &["%p", "cannot capture"], |f, a| {
        at(line!(), f.reduce_with(&[a.v], &[f.scalar(0f32)], &[0], |_, _, _| vec![a.p]))
    }),
    (Class::Visibility, "stablehlo.negate", &["inside a region that has ended"], |f, a| {
        let mut leaked = a.v;
        f.repeat(2, &[a.v], |f, _, carried| {
            leaked = f.exp(carried[0]);
            vec![leaked]
        });
        at(line!(), f.neg(leaked))
    }),
    (Class::Signature, "arg", &["\"x\" is declared twice"], |f, _| {
        at(line!(), f.input("x", Type::new(DType::F32, [])))
    }),
    (Class::Signature, "arg", &["\"cache\" is donated to \"cache\", which is no result"], |f, _| {
        at(line!(), f.arg("cache", DType::F32.tensor([8]), ArgAttrs::new().donate_to("cache")))
    }),
];

/// The line, once the call has been made there.
fn at<T>(line: u32, _called: T) -> u32 {
    line
}

#[test]
fn the_wrong_call_is_named_with_its_shapes_and_place() {
    for &(class, op, parts, wrong) in CASES {
        let (error, line) = error(wrong);
        let text = error.to_string();
        assert_eq!((error.class, error.op), (class, op), "{text}");
        assert!(
            text.contains(&format!("{op} at crates/stablehlo/tests/errors.rs:{line}:")),
            "{text}, not {line}"
        );
        for part in parts {
            assert!(text.contains(part), "{text:?} does not say {part:?}");
        }
    }
}

#[test]
fn the_first_error_is_kept_and_names_its_scope() {
    let (error, _) = error(|f, a| {
        let _layer = f.scope("layer.mla");
        let wrong = {
            let _gate = f.scope("gate");
            f.add(a.x, a.v)
        };
        // What follows goes on with the first operand's type, and its own errors are not the first.
        assert_eq!(f.dims(wrong), [2, 3]);
        at(0, f.exp(a.i))
    });
    assert_eq!((error.op, error.scope.as_str()), ("stablehlo.add", "layer.mla/gate"));
    assert!(error.to_string().contains(" in layer.mla/gate: operands differ in shape"), "{error}");
}

#[test]
fn a_function_needs_results_and_a_donation_a_result_of_its_type() {
    let module = Module::new("unfinished");
    module.main();
    let error = module.finish().unwrap_err();
    assert!(error.to_string().contains("main has no ret"), "{error}");

    let module = Module::new("donation");
    let f = module.main();
    let x = f.arg("x", DType::F32.tensor([2]), ArgAttrs::new().donate_to("y"));
    f.ret(&[("y", f.convert(x, DType::BF16))]);
    let error = module.finish().unwrap_err();
    assert_eq!(error.class, Class::Signature);
    assert!(error.message.contains("tensor<2xf32> is donated to \"y\" of tensor<2xbf16>"), "{error}");
}

#[test]
fn a_value_of_another_function_is_refused() {
    let module = Module::new("two");
    let (f, g) = (module.main(), module.func("other"));
    let (x, y) = (f.input("x", DType::F32.scalar()), g.input("y", DType::F32.scalar()));
    g.ret(&[("y", y)]);
    f.ret(&[("z", f.add(x, y))]);
    let error = module.finish().unwrap_err();
    assert_eq!(error.class, Class::Visibility);
    assert!(error.message.contains("another function is used in main"), "{error}");
}
