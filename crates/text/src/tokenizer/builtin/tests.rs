use super::pieces;

#[test]
fn long_runs_are_cut_as_kimis_tokenizer_cuts_them() {
    // `_split_whitespaces_or_nonwhitespaces` of tokenization_kimi.py yields these.
    assert_eq!(
        pieces("abc  defghij klmno p", 400, 3),
        ["abc  def", "ghi", "j klm", "no p"],
        "cut only where a run is too long"
    );
    assert_eq!(pieces("     #####", 400, 3), ["   ", "  ###", "##"]);
    assert_eq!(pieces("abcdefgh", 5, 100), ["abcde", "fgh"]);
    assert_eq!(pieces("aaaa bbbb", 6, 2), ["aa", "aa b", "bb", "b"]);
    assert_eq!(pieces("", 5, 5), [""]);
}
