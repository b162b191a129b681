use std::time::SystemTime;

use process::Random;
use programs::sampling;

use super::{Asked, Chat, Door, Prompt, Request};
use crate::error::Error;
use crate::model::Model;

const CONTEXT: u32 = 16;

fn check(change: impl FnOnce(&mut Asked)) -> Result<Request, Error> {
    let folder = tempfile::tempdir().unwrap();
    crate::test_model::write(folder.path());
    let model = Model::open(folder.path(), "demo".to_owned()).unwrap();
    let prompt = Prompt::Text("hello".to_owned());
    let mut asked = Asked { model: "demo".to_owned(), prompt, ..Asked::default() };
    change(&mut asked);
    let random = Random::new(|bytes| bytes.fill(7));
    Request::check(asked, &model, CONTEXT, &random, SystemTime::UNIX_EPOCH)
}

fn refused_field(change: impl FnOnce(&mut Asked)) -> String {
    match check(change) {
        Err(Error::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_unset_is_filled_in() {
    let request = check(|_| {}).unwrap();
    assert_eq!((request.prompt.len(), request.max_tokens), (5, 11), "as much as the context holds");
    assert_eq!(request.sampling.max_tokens, Some(11));
    assert_eq!(request.sampling.seed, 0x0707_0707_0707_0707);
    assert_eq!(request.end_tokens, [crate::test_model::END]);
    assert_eq!(request.id, "07070707-0707-4707-8707-070707070707");
    let few = check(|asked| asked.default_max_tokens = Some(3)).unwrap();
    assert_eq!(few.max_tokens, 3);
    let stops = sampling::Asked { ignore_eos: true, stop_token_ids: vec![65], ..Default::default() };
    assert_eq!(check(|asked| asked.sampling = stops).unwrap().end_tokens, [65]);
}

#[test]
fn wrong_fields_are_named() {
    assert_eq!(refused_field(|asked| asked.prompt = Prompt::Missing), "prompt");
    assert_eq!(refused_field(|asked| asked.prompt = Prompt::Text(String::new())), "prompt");
    assert_eq!(refused_field(|asked| asked.prompt = Prompt::Tokens(vec![])), "prompt");
    assert_eq!(refused_field(|asked| asked.prompt = Prompt::Tokens(vec![1, 9999])), "prompt.tokens.ids");
    assert_eq!(refused_field(|asked| asked.prompt = Prompt::Tokens(vec![-1])), "prompt.tokens.ids");
    assert_eq!(refused_field(|asked| asked.prompt = Prompt::Chat(Chat::default())), "prompt.chat.messages");
    let chat = |content: &str| {
        let message =
            text::Message::Tool(text::Outcome { content: content.to_owned(), ..Default::default() });
        Prompt::Chat(Chat { messages: vec![message], ..Chat::default() })
    };
    assert_eq!(refused_field(|asked| asked.prompt = chat("{}")), "prompt.chat.messages[0].role");
    assert_eq!(refused_field(|asked| asked.model.clear()), "model");
    assert_eq!(refused_field(|asked| asked.request_id = "a b".to_owned()), "request_id");
    assert_eq!(refused_field(|asked| asked.sampling.max_tokens = Some(-1)), "sampling.max_tokens");
    assert_eq!(refused_field(|asked| asked.sampling.temperature = Some(f64::NAN)), "sampling.temperature");
    assert_eq!(refused_field(|asked| asked.sampling.stop = vec!["x".to_owned(); 1000]), "sampling.stop");
    let http = |asked: &mut Asked| {
        asked.door = Door::Http;
        asked.sampling.top_p = Some(7.0);
    };
    assert_eq!(refused_field(http), "top_p");
    let unknown = check(|asked| asked.model = "other".to_owned()).unwrap_err();
    assert!(matches!(unknown, Error::UnknownModel { .. }), "{unknown}");
}

#[test]
fn prompt_and_output_fit_the_context_or_are_refused() {
    let tokens = |n: usize| move |asked: &mut Asked| asked.prompt = Prompt::Tokens(vec![1; n]);
    assert_eq!(check(tokens(15)).unwrap().max_tokens, 1);
    for length in [16, 17] {
        let refused = check(tokens(length)).unwrap_err();
        assert!(matches!(&refused, Error::ContextLength { field, .. } if field == "prompt"), "{refused}");
    }
    let refused = check(|asked| asked.sampling.max_tokens = Some(12)).unwrap_err();
    assert!(matches!(refused, Error::ContextLength { tokens: 17, .. }), "{refused}");
    assert_eq!(refused.fault().field.as_deref(), Some("sampling.max_tokens"));
    let endless = check(|asked| asked.prompt = Prompt::Text("x".repeat(1 << 20))).unwrap_err();
    assert!(matches!(endless, Error::ContextLength { tokens, .. } if tokens > 1000), "{endless}");
}
