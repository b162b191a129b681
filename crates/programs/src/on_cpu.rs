//! Runs programs on the CPU plugin, for tests.

use std::sync::OnceLock;

use pjrt::{Buffer, Client, CompileOptions, DType, Element, Executable};

fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| Client::open(&pjrt::plugin_path().unwrap()).unwrap())
}

fn dims_of(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&dim| dim as i64).collect()
}

/// An array on the device.
pub(crate) fn array<T: Element>(data: &[T], dims: &[usize]) -> Buffer {
    client().buffer_from_slice(data, &dims_of(dims), &client().devices()[0]).unwrap()
}

/// An array of booleans on the device.
pub(crate) fn booleans(data: &[bool], dims: &[usize]) -> Buffer {
    let bytes: Vec<u8> = data.iter().map(|&each| u8::from(each)).collect();
    client().buffer_from_host(&bytes, DType::Pred, &dims_of(dims), &client().devices()[0]).unwrap()
}

/// The program, ready to run.
pub(crate) fn compile(text: &str) -> Executable {
    client().compile(text, &CompileOptions::sharded_over(&client().devices()[..1])).unwrap()
}

/// Compiles and runs once.
pub(crate) fn run(text: &str, arguments: &[&Buffer]) -> Vec<Buffer> {
    compile(text).execute(arguments).unwrap()
}
