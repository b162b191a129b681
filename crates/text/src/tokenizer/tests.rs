use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use super::Tokenizer;
use crate::{Error, Family};

static K3: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::builtin(Family::KimiK3, None).unwrap());
static GLM: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::builtin(Family::Glm5Next, Some(154_880)).unwrap());

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

/// What a stream of `ids` shows, none of it empty.
fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut decoder = tokenizer.decoder();
    let mut text: String = ids.iter().filter_map(|&id| decoder.push(id).unwrap()).collect();
    text.extend(decoder.finish().unwrap());
    text
}

#[test]
fn tokenizes_as_the_outside_does() {
    let fixture: Value = serde_json::from_str(include_str!("../../fixtures/ids.json")).unwrap();
    let rows = fixture["rows"].as_array().unwrap();
    assert!(rows.len() > 30);
    for row in rows {
        let text = row["text"].as_str().unwrap();
        for (tokenizer, name) in [(&*K3, "kimi_k3"), (&*GLM, "glm5")] {
            let expected = ids(&row[name]);
            assert_eq!(tokenizer.encode_plain(text).unwrap(), expected, "{name}: {text:?}");
            assert_eq!(streamed(tokenizer, &expected), text, "{name}");
            assert_eq!(tokenizer.decode(&expected).unwrap(), text, "{name}");
        }
    }
}

#[test]
fn special_tokens_have_their_published_ids() {
    assert_eq!(K3.encode("[EOS]<|open|>think<|sep|>").unwrap(), [163_585, 163_587, 39_964, 163_589]);
    assert_eq!(GLM.encode("<|user|>Hi<think>").unwrap(), [154_827, 13_041, 154_841]);
    assert_eq!(
        (K3.end_tokens(), GLM.end_tokens()),
        (vec![163_585, 163_586], vec![154_820, 154_827, 154_829])
    );
    assert_eq!(GLM.marker("<|image|>"), Some(154_854));
    assert_eq!(K3.token_bytes(163_605), b"<|media_pad|>");
    // Markers between the parts of an answer are text, those between turns are not.
    assert_eq!(streamed(&GLM, &[154_841, 13_041, 154_842, 154_827]), "<think>Hi</think>");
    assert_eq!(streamed(&K3, &[163_588, 39_964, 163_589, 163_586]), "<|close|>think<|sep|>");
}

#[test]
fn ids_that_the_model_does_not_have_are_refused() {
    assert_eq!((K3.vocabulary_size(), GLM.vocabulary_size()), (163_840, 154_880));
    assert_eq!(GLM.decoder().push(154_879).unwrap(), None, "a row of the embedding without a token");
    assert!(matches!(GLM.decoder().push(154_880), Err(Error::UnknownToken { id: 154_880, size: 154_880 })));
    assert!(matches!(K3.decode(&[1, 163_840]), Err(Error::UnknownToken { id: 163_840, .. })));
    let small = Tokenizer::builtin(Family::Glm5Next, Some(96)).unwrap_err();
    assert!(small.to_string().contains("vocab_size is 96"), "{small}");
}

#[test]
fn a_folder_s_own_tokenizer_wins() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        r#"{"model_type": "kimi_k3", "text_config": {"model_type": "kimi_linear", "vocab_size": 163840}}"#;
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let builtin = Tokenizer::open(folder.path()).unwrap();
    assert_eq!((builtin.family(), builtin.vocabulary_size()), (Some(Family::KimiK3), 163_840));
    let own = r#"{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
    std::fs::write(folder.path().join("tokenizer.json"), own).unwrap();
    let own = Tokenizer::open(folder.path()).unwrap();
    assert_eq!(own.encode("a").unwrap(), [0]);
    assert_eq!((own.family(), own.end_tokens()), (None, vec![]), "it lacks the family's markers");
    let unknown = Tokenizer::open(tempfile::tempdir().unwrap().path()).unwrap_err();
    assert!(matches!(unknown, Error::Read { .. }), "{unknown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_survives_the_round_trip_and_stays_ordinary(
        text in "(\\PC|[ \\n\\t]{1,9}|[0-9]{1,5}|\\p{Han}{1,4}|<\\|user\\|>|</think>|<\\|sep\\|>|\\[EOS\\]){0,12}"
    ) {
        for (tokenizer, first_special) in [(&*K3, 163_584), (&*GLM, 154_820)] {
            let ids = tokenizer.encode_plain(&text).unwrap();
            prop_assert!(ids.iter().all(|&id| id < first_special));
            prop_assert_eq!(streamed(tokenizer, &ids), text.as_str());
        }
    }

    #[test]
    fn any_ids_stream_to_what_they_are_together(ids in proptest::collection::vec(0_u32..163_840, 0..30)) {
        prop_assert_eq!(streamed(&K3, &ids), K3.decode(&ids).unwrap());
    }
}
