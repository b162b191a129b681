//! Admit, place, start and relay requests; gRPC, OpenAI HTTP.
