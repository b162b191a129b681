use std::io::Write;
use std::path::Path;

use proptest::prelude::{ProptestConfig, any, prop, proptest};

use super::{Entry, parse, read};
use crate::{Error, fuzz};

fn parsed(json: &str, values: u64) -> Result<Vec<Entry>, Error> {
    parse(json.as_bytes(), 8 + json.len() as u64 + values, Path::new("m"))
}

#[test]
fn a_sound_header_is_read_in_the_order_of_its_values() {
    let json = r#"{"__metadata__":{"format":"pt"},
        "b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
        "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
        "none":{"dtype":"F32","shape":[0,7],"data_offsets":[16,16]}}"#;
    let entries = parsed(json, 16).unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "none"]);
    assert_eq!((entries[1].offset, entries[1].bytes), (8 + json.len() as u64 + 4, 12));
}

#[test]
fn each_lie_is_refused_by_the_name_of_its_tensor() {
    let one =
        |entry: &str| format!(r#"{{"a":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},"w":{entry}}}"#);
    let lies = [
        (r#"{"dtype":"F32","shape":[1],"data_offsets":[2,6]}"#, "overlaps"),
        (r#"{"dtype":"F32","shape":[1],"data_offsets":[8,12]}"#, "hole"),
        (r#"{"dtype":"F32","shape":[1],"data_offsets":[4,12]}"#, "does not take 8 bytes"),
        (r#"{"dtype":"F32","shape":[5],"data_offsets":[4,24]}"#, "ends at byte"),
        (r#"{"dtype":"F32","shape":[1],"data_offsets":[8,4]}"#, "hole"),
        (r#"{"dtype":"Q7","shape":[1],"data_offsets":[4,8]}"#, "unknown variant"),
        (r#"{"dtype":"F32","shape":[-1],"data_offsets":[4,8]}"#, "header entry"),
        (r#"{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[4,8]}"#, "does not take"),
        (r#"{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551615,3]}"#, "overflows"),
        (r#"{"dtype":"F4","shape":[3],"data_offsets":[4,5]}"#, "does not take"),
        ("7", "header entry"),
    ];
    for (entry, why) in lies {
        let error = parsed(&one(entry), 8).unwrap_err();
        assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == "w"), "{entry}: {error}");
        assert!(error.to_string().contains(why), "{entry}: {error}");
    }
}

#[test]
fn a_file_longer_or_shorter_than_its_header_says_is_refused() {
    let json = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    assert!(parsed(json, 8).is_ok());
    assert!(matches!(parsed(json, 7), Err(Error::Tensor { .. })));
    assert!(matches!(parsed(json, 9), Err(Error::File { .. })));
}

#[test]
fn a_claimed_length_allocates_nothing() {
    for claimed in [u64::MAX, 1 << 40, 100_000_001, 9] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&u64::to_le_bytes(claimed)).unwrap();
        file.write_all(b"{}").unwrap();
        let error = read(file.as_file(), file.path()).unwrap_err();
        assert!(error.to_string().contains("is claimed"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the bytes are, the answer is an error or entries that lie end to end inside the file.
    #[test]
    fn no_header_panics_or_escapes_its_file(
        cuts in prop::collection::vec((0usize..200, any::<u8>()), 0..6),
        length in 0usize..200,
        values in 0u8..40,
    ) {
        let sound = br#"{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]}}"#;
        let mut json = sound.to_vec();
        json.truncate(length.max(sound.len() - 20));
        for (at, byte) in cuts {
            let at = at % json.len();
            json[at] = byte;
        }
        json.insert(0, values);
        fuzz::safetensors(&json);
    }
}

#[test]
fn the_fuzz_target_reaches_the_entries() {
    assert!(fuzz::safetensors(b"\x04{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"));
    assert!(!fuzz::safetensors(b"\x05{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"));
}
