//! The text of a module around the operations, which are printed as they are built.

use std::fmt::Write as _;

use crate::arg::{Arg, Donation, Output};
use crate::func::{FuncState, is_identifier};
use crate::module::ModuleState;

pub(crate) fn module(module: &ModuleState) -> String {
    let mut out = format!("module @{}", module.name);
    if let Some(mesh) = module.meshes.first() {
        let devices = mesh.devices();
        let _ =
            write!(out, " attributes {{mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1 : i32}}");
    }
    out.push_str(" {\n");
    for mesh in &module.meshes {
        let _ = writeln!(out, "  {mesh}");
    }
    for func in &module.funcs {
        write_func(&func.borrow(), &mut out);
    }
    out.push_str("}\n");
    for (index, path) in module.locations.iter().enumerate() {
        let _ = writeln!(out, "#loc{index} = loc(\"{path}\")");
    }
    out
}

fn write_func(func: &FuncState, out: &mut String) {
    let outputs = func.outputs.as_deref().unwrap_or_default();
    let visibility = if func.is_main() { "public" } else { "private" };
    let args: Vec<String> = func.args.iter().map(|arg| arg_text(arg, outputs)).collect();
    let results: Vec<String> = outputs.iter().map(output_text).collect();
    let _ = writeln!(
        out,
        "  func.func {visibility} @{}({}) -> ({}) {{",
        func.name,
        args.join(", "),
        results.join(", ")
    );
    for block in &func.blocks {
        out.push_str(&block.text);
    }
    let names: Vec<&str> = outputs
        .iter()
        .filter_map(|output| func.slots.get(output.value.index as usize).map(|slot| slot.name.as_str()))
        .collect();
    let types: Vec<String> = outputs.iter().map(|output| output.ty.to_string()).collect();
    match names.is_empty() {
        true => out.push_str("    return\n"),
        false => {
            let _ = writeln!(out, "    return {} : {}", names.join(", "), types.join(", "));
        }
    }
    out.push_str("  }\n");
}

fn arg_text(arg: &Arg, outputs: &[Output]) -> String {
    let mut attrs = Vec::new();
    match &arg.donation {
        Donation::Keep => {}
        Donation::Any => attrs.push("jax.buffer_donor = true".to_owned()),
        Donation::To(target) => {
            let index = outputs.iter().position(|output| output.name == *target).unwrap_or_default();
            attrs.push(format!("tf.aliasing_output = {index} : i32"));
        }
    }
    if let Some(sharding) = &arg.sharding {
        attrs.push(format!("sdy.sharding = {sharding}"));
    }
    format!("%{}: {}{}", arg.name, arg.ty, dictionary(&attrs))
}

fn output_text(output: &Output) -> String {
    let mut attrs = vec![format!("jax.result_info = {}", quote(&output.name))];
    if let Some(sharding) = &output.sharding {
        attrs.push(format!("sdy.sharding = {sharding}"));
    }
    format!("{}{}", output.ty, dictionary(&attrs))
}

fn dictionary(attrs: &[String]) -> String {
    if attrs.is_empty() { String::new() } else { format!(" {{{}}}", attrs.join(", ")) }
}

/// A string literal as MLIR reads it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            0x20..0x7f => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:02X}");
            }
        }
    }
    out.push('"');
    out
}

/// A symbol's reference: `@name`, in quotes where it must be.
pub(crate) fn symbol(name: &str) -> String {
    if is_identifier(name) { format!("@{name}") } else { format!("@{}", quote(name)) }
}

/// `1, 2, 3`.
pub(crate) fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// `array<i64: 1, 2, 3>`.
pub(crate) fn array<T: ToString>(items: &[T]) -> String {
    if items.is_empty() { "array<i64>".to_owned() } else { format!("array<i64: {}>", list(items)) }
}

/// `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`.
pub(crate) fn matrix(rows: &[Vec<i64>]) -> String {
    let width = rows.first().map_or(0, Vec::len);
    let text: Vec<String> = rows.iter().map(|row| format!("[{}]", list(row))).collect();
    match rows.is_empty() || width == 0 {
        true => format!("dense<> : tensor<{}x{width}xi64>", rows.len()),
        false => format!("dense<[{}]> : tensor<{}x{width}xi64>", text.join(", "), rows.len()),
    }
}
