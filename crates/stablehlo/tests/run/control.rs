use stablehlo::{Composite, CustomCall, DType, Func, Module, Value};

use crate::row::{Row, Spread, row, scalar, vector};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = loops();
    rows.extend(branches());
    rows.extend(calls());
    rows
}

fn loops() -> Vec<Row> {
    vec![
        // Both regions use `limit` and `step` of the function around them.
        row(
            "while captures",
            &[scalar(1i32), scalar(100i32), scalar(3i32)],
            |f, x| {
                let (limit, step) = (x[1], x[2]);
                f.while_loop(
                    &[x[0], f.scalar(0i32)],
                    |f, at| f.lt(at[0], limit),
                    |f, at| vec![f.mul(at[0], step), f.add_scalar(at[1], 1.0)],
                )
            },
            &[scalar(243i32), scalar(5i32)],
        ),
        row(
            "repeat nested",
            &[vector(&[1.0f32, 2.0])],
            |f, x| {
                let bias = x[0];
                f.repeat(3, &[x[0]], |f, index, outer| {
                    let weight = f.convert(index, DType::F32);
                    let inner = f.repeat(2, &[outer[0]], |f, _, sum| vec![f.add(sum[0], bias)]);
                    vec![f.add(inner[0], f.broadcast_in_dim(weight, &[2], &[]))]
                })
            },
            &[vector(&[10.0f32, 17.0])],
        ),
    ]
}

fn branches() -> Vec<Row> {
    let choose = |pred: bool| {
        row(
            &format!("if {pred}"),
            &[scalar(pred), vector(&[1.0f32, 4.0])],
            |f, x| {
                let y = x[1];
                f.if_else(x[0], |f| vec![f.sqrt(y), y], |f| vec![y, f.neg(y)])
            },
            &match pred {
                true => [vector(&[1.0f32, 2.0]), vector(&[1.0f32, 4.0])],
                false => [vector(&[1.0f32, 4.0]), vector(&[-1.0f32, -4.0])],
            },
        )
    };
    let pick = |index: i32, want: f32| {
        row(
            &format!("case {index}"),
            &[scalar(index), scalar(2.0f32)],
            |f, x| {
                let y = x[1];
                f.case(x[0], &[&|f| vec![f.neg(y)], &|f| vec![f.exp(y)], &|_| vec![y]])
            },
            &[scalar(want)],
        )
    };
    vec![choose(true), choose(false), pick(0, -2.0), pick(1, 2f32.exp()), pick(7, 2.0), pick(-1, 2.0)]
}

/// `twice_plus(x, y)`: two results, so that calls return several values.
fn twice_plus(module: &Module) -> Func {
    let g = module.func("twice_plus");
    let (x, y) = (g.input("x", DType::F32.tensor([2])), g.input("y", DType::F32.tensor([2])));
    let twice = g.mul_scalar(x, 2.0);
    g.ret(&[("sum", g.add(twice, y)), ("twice", twice)]);
    g
}

fn calls() -> Vec<Row> {
    let (x, y) = (vector(&[1.0f32, 2.0]), vector(&[10.0f32, 20.0]));
    let want = vec![vec![vector(&[12.0f32, 24.0]), vector(&[2.0f32, 4.0])]];
    let with_function = |name: &str, build: fn(&Module, &Func, &[Value]) -> Vec<Value>| Row {
        name: name.to_owned(),
        spread: Spread::One,
        inputs: vec![vec![x.clone(), y.clone()]],
        build: Box::new(build),
        want: want.clone(),
    };
    vec![
        with_function("call", |module, f, x| f.call(&twice_plus(module), x)),
        with_function("composite", |module, f, x| {
            let composite = Composite {
                name: "tandem.twice_plus".to_owned(),
                attributes: vec!["scale = 2 : i64".to_owned()],
                version: 1,
            };
            f.composite(&composite, &twice_plus(module), x)
        }),
        row(
            "optimization_barrier",
            std::slice::from_ref(&x),
            |f, x| f.optimization_barrier(&[x[0], f.neg(x[0])]),
            &[x.clone(), vector(&[-1.0f32, -2.0])],
        ),
        // The CPU plugin offers no arithmetic by name; this target is the identity that its partitioner takes away.
        row(
            "custom_call",
            std::slice::from_ref(&x),
            |f, x| {
                let mut call = CustomCall::new("Sharding");
                call.attributes.push("mhlo.sharding = \"{replicated}\"".to_owned());
                f.custom_call(&call, &[x[0]], &[DType::F32.tensor([2])])
            },
            std::slice::from_ref(&x),
        ),
        row(
            "scopes",
            std::slice::from_ref(&x),
            |f, x| {
                let _layer = f.scope("layer.kda");
                let y = f.exp(x[0]);
                let _gate = f.scope("gate");
                f.comment("no decay below one");
                vec![f.log(f.max(y, f.splat_like(y, 1.0)))]
            },
            std::slice::from_ref(&x),
        ),
    ]
}
