//! Bodies of the fuzz targets; tests drive them over changed sound requests too.

use prost::Message;
use proto::v1::GenerateRequest;

use crate::ingress;

#[cfg(test)]
mod tests;

/// Any bytes as the body of an HTTP request: how many of the two APIs take it.
pub fn bodies(bytes: &[u8]) -> usize {
    std::str::from_utf8(bytes).map_or(0, ingress::takes)
}

/// Any bytes as a gRPC request.
pub fn generate(bytes: &[u8]) -> bool {
    GenerateRequest::decode(bytes).is_ok_and(|request| ingress::asked(request).is_ok())
}
