//! Safetensors shards to device weights: read, convert, upload, streaming.
