//! The printed text, whole. `UPDATE_GOLDEN=1` writes the files anew; read the difference before committing it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use stablehlo::{
    ArgAttrs, BackendConfig, Channel, CustomCall, DType, Dot, Mesh, Module, Program, Reducer, Sharding,
    Update,
};

fn check(program: &Program) {
    let name = format!("tests/golden/{}.mlir", program.name);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &program.text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(golden == program.text, "{name} differs; the program now prints:\n{}", program.text);
}

/// A step over a paged cache: donation by name, scopes, a loop that captures, gather and scatter.
#[test]
fn paged_step() {
    let module = Module::new("paged_step");
    let f = module.main();
    let pages = f.arg("latents", DType::BF16.tensor([16, 4, 8]), ArgAttrs::new().donate_to("latents"));
    let token = f.input("token", DType::BF16.tensor([2, 8]));
    let place = f.input("place", DType::S32.tensor([2, 2]));
    let table = f.input("table", DType::S32.tensor([2, 3]));
    let written = {
        let _write = f.scope("mla/write");
        f.scatter_at(pages, place, token, Update::Replace)
    };
    let _attend = f.scope("mla/attend");
    let context = f.reshape(f.take_rows(written, table), &[2, 12, 8]);
    let dot = Dot::contract([1], [2]).batch([0], [0]).out(DType::F32);
    let scores = f.dot_general(token, context, &dot);
    let peak = f.broadcast_like(f.reduce_max(scores, &[1]), scores, &[0]);
    let weights = f.exp(f.sub(scores, peak));
    let spread = f.repeat(3, &[weights], |f, _, carried| vec![f.add(f.mul_scalar(carried[0], 0.5), weights)]);
    f.ret(&[("scores", spread[0]), ("latents", written)]);
    check(&module.finish().unwrap());
}

/// A layer over a mesh: shardings of arguments, results and values, and a part written per device.
#[test]
fn sharded_layer() {
    let module = Module::new("sharded_layer");
    module.mesh(Mesh::new("mesh", [("data", 2), ("model", 4)]));
    let f = module.main();
    let rows = Sharding::split("mesh", 2, 0, "data");
    let columns = Sharding::split("mesh", 2, 1, "model");
    let x = f.arg("x", DType::F32.tensor([8, 16]), ArgAttrs::new().sharding(rows.clone()));
    let up = f.arg(
        "up",
        DType::F32.tensor([32, 16]),
        ArgAttrs::new().sharding(Sharding::split("mesh", 2, 0, "model")),
    );
    let down = f.arg("down", DType::F32.tensor([16, 32]), ArgAttrs::new().sharding(columns.clone()).donate());
    let hidden = f.with_sharding(f.linear(x, up), &Sharding::new("mesh", [&["data"][..], &["model"][..]]));
    let inside = Sharding::new("mesh", [&["data"][..], &["model"][..]]);
    let y = f.per_device(&[(hidden, inside), (down, columns)], std::slice::from_ref(&rows), |f, part| {
        let model = Channel::Devices { channel: 1, groups: vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]] };
        vec![f.all_reduce(f.linear(part[0], part[1]), &model, Reducer::Add)]
    });
    f.ret_sharded(&[("y", y[0], Some(rows))]);
    check(&module.finish().unwrap());
}

/// Everything a custom call can say, a private function, and constants of every kind.
#[test]
fn calls_and_constants() {
    let module = Module::new("calls_and_constants");
    let g = module.func("scaled");
    let x = g.input("x", DType::F32.tensor([2, 2]));
    g.ret(&[("y", g.mul(x, g.constant(&[1.0f32, 0.1, -0.0, f32::NAN], &[2, 2])))]);
    let f = module.main();
    let x = f.input("x", DType::F32.tensor([2, 2]));
    let y = f.call(&g, &[x])[0];
    let call = CustomCall {
        config: BackendConfig::Text("{\"body\": \"\u{e9}\\n\"}".to_owned()),
        has_side_effect: true,
        operand_layouts: vec![vec![1, 0], vec![0]],
        result_layouts: vec![vec![0, 1], vec![]],
        aliases: vec![(0, 0)],
        ..CustomCall::new("tpu_custom_call")
    };
    let counts = f.constant(&(0..80u8).collect::<Vec<_>>(), &[80]);
    let results = f.custom_call(&call, &[y, counts], &[DType::F32.tensor([2, 2]), DType::S32.scalar()]);
    f.ret(&[("y", results[0]), ("status", results[1])]);
    check(&module.finish().unwrap());
}
