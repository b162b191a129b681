use std::collections::BTreeMap;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::{Folder, INDEX, SINGLE};

fn write(path: &Path, names: &[&str]) {
    let values = [0; 8];
    let view = || TensorView::new(Dtype::F32, vec![2], &values).unwrap();
    let tensors: BTreeMap<&str, _> = names.iter().map(|&name| (name, view())).collect();
    std::fs::write(path, safetensors::serialize(tensors, None).unwrap()).unwrap();
}

#[test]
fn shards_are_found_by_the_index_and_must_agree_with_it() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("one"), &["a", "b"]);
    write(&dir.path().join("two"), &["c"]);
    let cases = [
        (r#"{"weight_map":{"a":"one","b":"one","c":"two"}}"#, None),
        (r#"{"weight_map":{"a":"one","b":"two","c":"two"}}"#, Some("tensor b: is not in two")),
        (r#"{"weight_map":{"a":"one","c":"two"}}"#, Some("tensor b: is not in the index")),
        (r#"{"weight_map":{"a":"one","b":"one","c":"two","d":"two"}}"#, Some("tensor d: is not in two")),
        (r#"{"weight_map":{"a":"one","b":"one","c":"three"}}"#, Some("three: No such file")),
        (r#"{"weight_map":{"a":"../one"}}"#, Some("is not a file name")),
        (r#"{"weight_map":{"a":""}}"#, Some("is not a file name")),
        (r#"{"weight_map":{"a":7}}"#, Some("invalid type")),
        ("[]", Some("invalid")),
    ];
    for (index, expected) in cases {
        std::fs::write(dir.path().join(INDEX), index).unwrap();
        let refused = Folder::open(dir.path()).err().map(|error| error.to_string());
        match (expected, refused) {
            (None, None) => {}
            (Some(expected), Some(refused)) => assert!(refused.contains(expected), "{index}: {refused}"),
            (_, other) => panic!("{index}: {other:?}"),
        }
    }
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("one"), &["a"]);
    write(&dir.path().join("two"), &["a", "b"]);
    std::fs::write(dir.path().join(INDEX), r#"{"weight_map":{"a":"one","b":"two"}}"#).unwrap();
    let refused = Folder::open(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("tensor a: is also in"), "{refused}");
}

#[test]
fn one_file_needs_no_index() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join(SINGLE), &["a"]);
    assert_eq!(Folder::open(dir.path()).unwrap().tensors().count(), 1);
}
