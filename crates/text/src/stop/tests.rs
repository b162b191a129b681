use proptest::prelude::*;

use super::{Checked, StopMatcher};

fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
    let mut matcher = StopMatcher::new(stops.iter().map(|&stop| stop.to_owned()).collect());
    let mut shown = String::new();
    for piece in pieces {
        match matcher.push((*piece).to_owned()) {
            Checked::Open(text) => shown.push_str(&text),
            Checked::Stopped { text, stop } => return (shown + &text, Some(stop)),
        }
    }
    (shown + &matcher.finish(), None)
}

/// Looks at every prefix of the whole text, shortest first.
fn naive(stops: &[&str], text: &str) -> (String, Option<String>) {
    for end in (1..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        let ending = stops.iter().filter(|stop| !stop.is_empty() && text[..end].ends_with(**stop));
        if let Some(stop) = ending.max_by_key(|stop| stop.len()) {
            return (text[..end - stop.len()].to_owned(), Some((*stop).to_owned()));
        }
    }
    (text.to_owned(), None)
}

#[test]
fn holds_back_only_what_may_become_a_stop() {
    let mut matcher = StopMatcher::new(vec!["END".to_owned()]);
    assert_eq!(matcher.push("the E".to_owned()), Checked::Open("the ".to_owned()));
    assert_eq!(matcher.push("N".to_owned()), Checked::Open(String::new()));
    assert_eq!(matcher.push("EN".to_owned()), Checked::Open("EN".to_owned()));
    assert_eq!(
        matcher.push("D, more".to_owned()),
        Checked::Stopped { text: String::new(), stop: "END".to_owned() }
    );
}

#[test]
fn releases_the_held_text_at_the_end() {
    assert_eq!(run(&["\n\n"], &["a\n"]), ("a\n".to_owned(), None));
}

proptest! {
    #[test]
    fn equals_naive_search_wherever_the_text_is_cut(
        stops in proptest::collection::vec("[abé🦀]{0,4}", 0..4),
        pieces in proptest::collection::vec("[abé🦀]{0,3}", 0..12),
    ) {
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(run(&stops, &pieces), naive(&stops, &pieces.concat()));
    }
}
