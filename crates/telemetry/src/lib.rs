//! One way to trace, count, and carry trace context across gRPC.
