//! The client the tests share, and the programs they run.

use std::sync::LazyLock;

use pjrt::{Buffer, Client, CompileOptions, Device, Element, Executable, OptionValue, Plugin, plugin_path};

/// One client with four devices for the whole suite: making one takes longer than most tests.
static CLIENT: LazyLock<Client> = LazyLock::new(|| {
    let plugin = Plugin::load(&plugin_path().unwrap()).unwrap();
    Client::new(&plugin, &[("cpu_device_count", OptionValue::Int64(4))]).unwrap()
});

pub(crate) fn client() -> &'static Client {
    &CLIENT
}

pub(crate) fn device() -> &'static Device {
    &client().devices()[0]
}

/// The program compiled for the first device.
pub(crate) fn compile(program: &str) -> Executable {
    client().compile(program, &CompileOptions::default()).unwrap()
}

pub(crate) fn vector<T: Element>(elements: &[T]) -> Buffer {
    client().buffer_from_slice(elements, &[elements.len() as i64], device()).unwrap()
}

/// Adds two vectors of four numbers.
pub(crate) const ADD: &str = "module @add {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %sum = stablehlo.add %a, %b : tensor<4xf32>
    return %sum : tensor<4xf32>
  }
}";

/// Adds `b` to `state` and keeps its place in memory.
pub(crate) const ADD_IN_PLACE: &str = "module @add_in_place {
  func.func public @main(%state: tensor<4096xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4096xf32>) -> tensor<4096xf32> {
    %sum = stablehlo.add %state, %b : tensor<4096xf32>
    return %sum : tensor<4096xf32>
  }
}";

/// Multiplies a matrix by itself 40 times: some tens of milliseconds.
pub(crate) const SLOW: &str = "module @slow {
  func.func public @main(%a: tensor<256x256xf32>) -> tensor<256x256xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %end = stablehlo.constant dense<40> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<256x256xf32>
    cond {
      %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %n = stablehlo.add %i, %one : tensor<i32>
      %y = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
      stablehlo.return %n, %y : tensor<i32>, tensor<256x256xf32>
    }
    return %r#1 : tensor<256x256xf32>
  }
}";

/// The identity matrix of `SLOW`'s size.
pub(crate) fn identity() -> Buffer {
    let mut elements = vec![0f32; 256 * 256];
    (0..256).for_each(|row| elements[row * 257] = 1.);
    client().buffer_from_slice(&elements, &[256, 256], device()).unwrap()
}
