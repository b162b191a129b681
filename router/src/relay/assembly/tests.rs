use std::time::SystemTime;

use process::Random;
use proto::v1::{EndReason, FinishReason, TokenDelta};
use text::Tokenizer;

use super::{Assembly, Drafts, Piece};
use crate::error::Error;
use crate::model::Model;
use crate::request::{Asked, Prompt, Request};
use crate::test_model::{END, write};

struct Fixture {
    tokenizer: Tokenizer,
    assembly: Assembly,
}

/// A request with a prompt of two tokens.
fn fixture(change: impl FnOnce(&mut Asked)) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let model = Model::open(folder.path(), "demo".to_owned()).unwrap();
    let mut asked =
        Asked { model: "demo".to_owned(), prompt: Prompt::Tokens(vec![1, 2]), ..Asked::default() };
    change(&mut asked);
    let request = Request::check(asked, &model, 64, &Random::system(), SystemTime::UNIX_EPOCH).unwrap();
    let tokenizer = model.tokenizer;
    Fixture { assembly: Assembly::new(&request, &tokenizer), tokenizer }
}

impl Fixture {
    fn first(&mut self, byte: u8) -> Piece {
        self.assembly.first(byte.into(), None, &self.tokenizer).unwrap()
    }

    fn more(&mut self, position: u32, text: &[u8]) -> Result<Piece, Error> {
        let ids: Vec<u32> = text.iter().map(|&byte| byte.into()).collect();
        self.delta(position, ids, 0)
    }

    /// A step's tokens, of which `drafted` were drafts.
    fn delta(&mut self, position: u32, token_ids: Vec<u32>, drafted: u32) -> Result<Piece, Error> {
        let accepted_tokens = drafted;
        let delta = TokenDelta {
            position,
            token_ids,
            drafted_tokens: drafted,
            accepted_tokens,
            ..TokenDelta::default()
        };
        self.assembly.more(delta, &self.tokenizer)
    }

    fn close(&mut self) -> Piece {
        self.assembly.close(&self.tokenizer).unwrap()
    }
}

fn reason(piece: &Piece) -> FinishReason {
    piece.finish.as_ref().unwrap().reason()
}

#[test]
fn tokens_of_both_workers_become_one_text() {
    let mut f = fixture(|_| {});
    assert_eq!(f.first(b'a').text, "a");
    assert_eq!(f.more(3, b"bc").unwrap().text, "bc");
    assert_eq!(f.more(5, &"é".as_bytes()[..1]).unwrap().text, "", "half a character waits");
    assert_eq!(f.more(6, &"é".as_bytes()[1..]).unwrap().text, "é");
    let last = f.delta(7, vec![END], 0).unwrap();
    assert_eq!((last.token_ids.as_slice(), last.text.as_str()), ([END].as_slice(), ""));
    assert!(f.assembly.is_complete());
    f.assembly.ended(EndReason::EndToken);
    assert_eq!(reason(&f.close()), FinishReason::Stop);
    assert_eq!(f.assembly.tokens(), 6);
}

#[test]
fn decode_may_be_heard_before_the_first_token() {
    let mut f = fixture(|_| {});
    assert!(f.more(3, b"b").unwrap().is_empty());
    assert!(f.more(4, b"c").unwrap().is_empty());
    f.assembly.ended(EndReason::Length);
    let piece = f.first(b'a');
    assert_eq!((piece.token_ids, piece.text.as_str()), (vec![97, 98, 99], "abc"));
    assert_eq!(reason(&f.close()), FinishReason::Length);
}

#[test]
fn gaps_and_tokens_after_the_end_are_errors() {
    let mut f = fixture(|asked| asked.sampling.max_tokens = Some(2));
    f.first(b'a');
    assert!(f.more(4, b"c").is_err(), "position 3 is missing");
    assert_eq!(f.more(3, b"b").unwrap().text, "b");
    assert!(f.assembly.is_complete(), "max_tokens are there");
    assert!(f.more(4, b"c").is_err());
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let mut f = fixture(|asked| asked.sampling.stop = vec!["STOP".to_owned()]);
    assert_eq!(f.first(b'x').text, "x");
    assert_eq!(f.more(3, b"yST").unwrap().text, "y");
    let last = f.more(6, b"OP and more").unwrap();
    assert_eq!((last.text.as_str(), last.token_ids.len()), ("", 2), "tokens after the stop do not count");
    let finish = last.finish.unwrap();
    assert_eq!((finish.reason(), finish.stop_sequence.as_str()), (FinishReason::StopSequence, "STOP"));
    assert_eq!(f.assembly.tokens(), 6);
}

#[test]
fn held_back_text_is_released_at_the_end() {
    let mut f = fixture(|asked| asked.sampling.stop = vec!["STOP".to_owned()]);
    f.first(b'x');
    assert_eq!(f.more(3, b"ST").unwrap().text, "");
    f.assembly.ended(EndReason::Length);
    assert_eq!(f.close().text, "ST");
}

#[test]
fn started_again_the_output_goes_on_where_it_was_cut() {
    let mut f = fixture(|asked| {
        asked.sampling.max_tokens = Some(12);
        asked.sampling.stop = vec!["STOP".to_owned()];
    });
    f.first(b'a');
    assert_eq!(f.delta(3, vec![b'S'.into(), b'T'.into()], 1).unwrap().text, "");
    f.assembly.restart();
    assert!(!f.assembly.has_first());
    // heard before prefill's token, and lost with the second start
    assert!(f.delta(6, vec![b'x'.into()], 3).unwrap().is_empty());
    f.assembly.ended(EndReason::Length);
    f.assembly.restart();
    assert_eq!(f.assembly.output(), b"aST".map(u32::from));
    assert!(f.more(5, b"O").is_err(), "that one is prefill's");
    assert_eq!(f.first(b'O').text, "");
    let last = f.delta(6, vec![b'P'.into(), b'!'.into()], 1).unwrap();
    assert_eq!((last.text.as_str(), last.token_ids.len()), ("", 1), "the stop string lies across two cuts");
    assert_eq!(reason(&last), FinishReason::StopSequence);
    assert_eq!(f.assembly.drafts(), Drafts { drafted: 2, accepted: 2 });

    let mut f = fixture(|_| {});
    f.first("é".as_bytes()[0]);
    f.assembly.restart();
    assert_eq!(f.first("é".as_bytes()[1]).text, "é", "so does a character");
}
