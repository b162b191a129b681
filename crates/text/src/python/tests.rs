use serde_json::json;

use super::{dumps, dumps_compact, dumps_indented};

#[test]
fn writes_as_python_does() {
    let value = json!({"b": [1, 2.0, 1e16, 1e-5, 0.0001, -2.5e-7, 123_456_789_012_345_680.0], "a": {}, "é": "\u{1f}\n\"\u{7f}/"});
    // python3 -c 'json.dumps(..., ensure_ascii=False)'
    let expected = "{\"b\": [1, 2.0, 1e+16, 1e-05, 0.0001, -2.5e-07, 1.2345678901234568e+17], \"a\": {}, \"é\": \"\\u001f\\n\\\"\u{7f}/\"}";
    assert_eq!(dumps(&value), expected);
    assert_eq!(dumps_compact(&json!({"a": [true, null], "b": 1})), r#"{"a":[true,null],"b":1}"#);
    assert_eq!(dumps_indented(&json!({"a": [1]}), 2), "{\n  \"a\": [\n    1\n  ]\n}");
}
