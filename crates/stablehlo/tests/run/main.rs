//! Every operation, run by the CPU plugin and compared with plain arithmetic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod collective;
mod control;
mod dot;
mod elementwise;
mod index;
mod reduce;
mod row;
mod shape;

use pjrt::{Client, CompileOptions, OptionValue, Plugin};
use stablehlo::{ArgAttrs, DType, Module, Op};

const DEVICES: i64 = 4;

/// One test, so that one client serves all programs and what ran can be held against [`Op::ALL`].
#[test]
fn every_operation_computes_what_it_says() {
    let plugin = Plugin::load(&pjrt::plugin_path().unwrap()).unwrap();
    let client = Client::new(&plugin, &[("cpu_device_count", OptionValue::Int64(DEVICES))]).unwrap();
    let tables = [
        elementwise::rows(),
        shape::rows(),
        index::rows(),
        reduce::rows(),
        dot::rows(),
        control::rows(),
        collective::rows(),
    ];
    let (mut texts, mut failures) = (String::new(), Vec::new());
    for row in tables.into_iter().flatten() {
        match row.run(&client, &mut texts) {
            Ok(()) => {}
            Err(why) => failures.push(format!("{}: {why}", row.name)),
        }
    }
    assert!(failures.is_empty(), "{} rows fail:\n{}", failures.len(), failures.join("\n"));
    donated_buffers_are_given_away(&client);
    // A mnemonic is followed by its operands, its generic form's closing quote, or a bracket.
    let ran =
        |op: &&Op| [" ", "\"", "("].iter().any(|end| texts.contains(&format!("{}{end}", op.mnemonic())));
    let missed: Vec<&Op> = Op::ALL.iter().filter(|op| !ran(op)).collect();
    assert!(missed.is_empty(), "no row runs {missed:?}");
}

/// The argument donated by name is gone after the call and its bytes are the result's; the other one stays.
fn donated_buffers_are_given_away(client: &Client) {
    let module = Module::new("donation");
    let f = module.main();
    let cache = f.arg("cache", DType::F32.tensor([64]), ArgAttrs::new().donate_to("cache"));
    let part = f.input("part", DType::F32.tensor([2]));
    let written = f.dynamic_update_slice(cache, part, &[f.scalar(3i32)]);
    f.ret(&[("sum", f.sum(written, &[0])), ("cache", written)]);
    let program = module.finish().unwrap();
    let executable = client.compile(&program.text, &CompileOptions::default()).unwrap();
    let device = executable.devices().next().unwrap();
    let cache = client.buffer_from_slice(&[1.0f32; 64], &[64], device).unwrap();
    let part = client.buffer_from_slice(&[5.0f32, 7.0], &[2], device).unwrap();
    let (before, outputs) = (cache.address().unwrap(), executable.execute(&[&cache, &part]).unwrap());
    assert!(cache.is_deleted() && !part.is_deleted());
    assert_eq!(outputs[program.output("cache").unwrap()].address().unwrap(), before);
    assert_eq!(outputs[program.output("sum").unwrap()].to_vec::<f32>().unwrap(), [74.0]);
}
