use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};

/// Fields, with those of nested messages.
fn fields(message: &DescriptorProto) -> Vec<(String, String)> {
    let own = message.field.iter().map(|field| (field.name().to_owned(), field.type_name().to_owned()));
    own.chain(message.nested_type.iter().flat_map(fields)).collect()
}

/// The clocks of two hosts are never compared: what is left of a deadline travels, in `grpc-timeout`, and a lease is a length.
#[test]
fn no_message_tells_a_point_in_time() {
    let set = FileDescriptorSet::decode(crate::DESCRIPTORS).unwrap();
    let fields: Vec<_> = set.file.iter().flat_map(|file| &file.message_type).flat_map(fields).collect();
    assert!(fields.len() > 100, "{}", fields.len());
    for (name, kind) in fields {
        let tells = ["deadline", "timestamp", "until", "expir", "_time", "clock"];
        let told = tells.iter().any(|tells| name.contains(tells)) || kind == ".google.protobuf.Timestamp";
        assert!(!told, "{name} {kind}");
    }
}
