use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use crate::Tokenizer;

const SPECIAL: u32 = 258;

static BYTE_LEVEL: LazyLock<Tokenizer> = LazyLock::new(byte_level);

/// A byte-level tokenizer without merges but one: 256 byte tokens, `th`, an added word, and a special token.
fn byte_level() -> Tokenizer {
    let mut vocab = serde_json::Map::new();
    let mut next = 0x100_u32;
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable { u32::from(byte) } else { next };
        next += u32::from(!printable);
        vocab.insert(char::from_u32(code).unwrap().to_string(), json!(byte));
    }
    vocab.insert("th".to_owned(), json!(256));
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "special": special, "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": false})
    };
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let json = json!({
        "version": "1.0",
        "added_tokens": [added(257, "→arrow", false), added(SPECIAL, "<|end|>", true)],
        "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": ["t h"]},
    });
    Tokenizer::from_json(&json.to_string()).unwrap()
}

fn pieces() -> Tokenizer {
    let mut vocab = serde_json::Map::new();
    for byte in 0..=255_u32 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(byte));
    }
    for (id, piece) in ["▁the", "▁cat", "s"].iter().enumerate() {
        vocab.insert((*piece).to_owned(), json!(256 + id));
    }
    let json = json!({
        "version": "1.0", "added_tokens": [],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": true},
    });
    Tokenizer::from_json(&json.to_string()).unwrap()
}

fn stream(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let mut decoder = tokenizer.decoder();
    let mut parts: Vec<String> = ids.iter().filter_map(|&id| decoder.push(id).unwrap()).collect();
    parts.extend(decoder.finish().unwrap());
    parts
}

#[test]
fn an_emoji_over_four_tokens_arrives_whole() {
    let tokenizer = byte_level();
    let ids = tokenizer.encode("the 🦀!").unwrap();
    assert_eq!(ids.len(), 1 + 1 + 1 + 4 + 1);
    assert_eq!(stream(&tokenizer, &ids), ["th", "e", " ", "🦀", "!"]);
}

#[test]
fn special_tokens_are_skipped_but_keep_their_name() {
    let tokenizer = byte_level();
    assert_eq!(tokenizer.encode("a<|end|>").unwrap(), [u32::from(b'a'), SPECIAL]);
    assert_eq!(stream(&tokenizer, &[u32::from(b'a'), SPECIAL]), ["a"]);
    assert_eq!(tokenizer.token_bytes(SPECIAL), b"<|end|>");
    assert_eq!(tokenizer.token_bytes(0xF0), [0xF0]);
    assert_eq!(tokenizer.token_bytes(9999), b"");
    assert_eq!(tokenizer.vocabulary_size(), 259);
}

#[test]
fn a_character_that_never_closes_becomes_a_replacement() {
    assert_eq!(stream(&byte_level(), &[0xF0, 0x9F]), ["\u{FFFD}"]);
}

#[test]
fn pieces_keep_spaces_and_whole_characters() {
    let tokenizer = pieces();
    let ids = [256, 257, 258, 0xF0, 0x9F, 0xA6, 0x80, 256];
    assert_eq!(stream(&tokenizer, &ids).concat(), "the cats🦀 the");
    assert_eq!(stream(&tokenizer, &ids).concat(), tokenizer.decode(&ids).unwrap());
    assert_eq!(tokenizer.token_bytes(256), b" the");
    assert_eq!(tokenizer.token_bytes(0xE2), [0xE2]);
}

proptest! {
    #[test]
    fn any_tokens_in_a_row_equal_decoding_at_once(ids in proptest::collection::vec(0_u32..259, 0..40)) {
        let tokenizer = &*BYTE_LEVEL;
        prop_assert_eq!(stream(tokenizer, &ids).concat(), tokenizer.decode(&ids).unwrap());
    }

    #[test]
    fn text_survives_the_round_trip(text in "\\PC{0,20}") {
        let tokenizer = &*BYTE_LEVEL;
        let ids = tokenizer.encode(&text).unwrap();
        let parts = stream(tokenizer, &ids);
        prop_assert!(parts.iter().all(|part| !part.is_empty()));
        prop_assert_eq!(parts.concat(), text);
    }
}
