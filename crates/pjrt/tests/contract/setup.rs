//! The client the tests share, and the programs they run.

use std::sync::LazyLock;

use pjrt::{Client, CompileOptions, Executable, OptionValue, Plugin, plugin_path};

/// One client with four devices for the whole suite: making one takes longer than most tests.
static CLIENT: LazyLock<Client> = LazyLock::new(|| {
    let plugin = Plugin::load(&plugin_path().unwrap()).unwrap();
    Client::new(&plugin, &[("cpu_device_count", OptionValue::Int64(4))]).unwrap()
});

pub(crate) fn client() -> &'static Client {
    &CLIENT
}

/// The program compiled for the first device.
pub(crate) fn compile(program: &str) -> Executable {
    client().compile(program, &CompileOptions::default()).unwrap()
}

/// Adds two vectors of four numbers.
pub(crate) const ADD: &str = "module @add {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %sum = stablehlo.add %a, %b : tensor<4xf32>
    return %sum : tensor<4xf32>
  }
}";
