//! Compiles the contracts without a protoc binary, and keeps the descriptors for reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

const FILES: [&str; 10] = [
    "externalscaler/externalscaler.proto",
    "tandem/v1/decode.proto",
    "tandem/v1/errors.proto",
    "tandem/v1/handover.proto",
    "tandem/v1/inference.proto",
    "tandem/v1/membership.proto",
    "tandem/v1/peer.proto",
    "tandem/v1/prefill.proto",
    "tandem/v1/sampling.proto",
    "tandem/v1/worker.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("tandem.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
