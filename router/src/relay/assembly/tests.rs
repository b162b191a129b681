use std::time::SystemTime;

use proto::v1::{EndReason, FinishReason};
use text::Tokenizer;

use super::{Assembly, Piece};
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
    let request = Request::check(asked, &model, 64, 7, SystemTime::UNIX_EPOCH).unwrap();
    let tokenizer = model.tokenizer;
    Fixture { assembly: Assembly::new(&request, &tokenizer), tokenizer }
}

impl Fixture {
    fn first(&mut self, byte: u8) -> Piece {
        self.assembly.first(byte.into(), None, &self.tokenizer).unwrap()
    }

    fn more(&mut self, position: u32, text: &[u8]) -> Result<Piece, Error> {
        let ids: Vec<u32> = text.iter().map(|&byte| byte.into()).collect();
        self.assembly.more(position, &ids, Vec::new(), &self.tokenizer)
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
    let last = f.assembly.more(7, &[END], Vec::new(), &f.tokenizer).unwrap();
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
fn started_again_nothing_is_delivered_twice() {
    let mut f = fixture(|asked| asked.sampling.max_tokens = Some(5));
    f.first(b'a');
    f.more(3, b"b").unwrap();
    f.assembly.restart();
    assert!(f.first(b'a').is_empty());
    assert_eq!(f.more(3, b"bc").unwrap().text, "c");
    f.assembly.restart();
    f.first(b'a');
    let differs = f.more(3, b"X").unwrap_err();
    assert!(matches!(differs, Error::Internal(_)), "{differs}");
}
