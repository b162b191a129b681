//! Compiles what clients need of the contracts, without a protoc binary.

use std::error::Error;

const FILES: [&str; 3] = ["tandem/v1/errors.proto", "tandem/v1/inference.proto", "tandem/v1/sampling.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed=proto/{file}");
    }
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
