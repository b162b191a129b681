use serde_json::{Value, json};

use super::{Opening, Part, ReplyStyle};
use crate::{Family, Tool};

fn tools() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"},
        "unit": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": parameters}});
    vec![Tool::new(tool.as_object().unwrap().clone()).unwrap()]
}

fn glm(opening: Opening) -> ReplyStyle {
    ReplyStyle::new(Some(Family::Glm5Next), opening, &tools())
}

fn k3(opening: Opening) -> ReplyStyle {
    ReplyStyle::new(Some(Family::KimiK3), opening, &tools())
}

/// The whole answer: thoughts, text, calls with their arguments, and whether each ended.
#[derive(Debug, Default, PartialEq)]
struct Whole {
    reasoning: String,
    text: String,
    calls: Vec<(String, String, bool)>,
}

fn read(style: &ReplyStyle, pieces: &[&str]) -> Whole {
    let mut parser = style.parser();
    let mut parts: Vec<Part> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    parts.extend(parser.finish());
    let mut whole = Whole::default();
    for part in parts {
        match part {
            Part::Reasoning(text) => whole.reasoning.push_str(&text),
            Part::Text(text) => whole.text.push_str(&text),
            Part::Call { name } => whole.calls.push((name, String::new(), false)),
            Part::Arguments(json) => whole.calls.last_mut().unwrap().1.push_str(&json),
            Part::CallEnd => whole.calls.last_mut().unwrap().2 = true,
        }
    }
    assert_eq!(parser.calls(), whole.calls.iter().filter(|call| call.2).count());
    whole
}

/// The answer, the same wherever the text is cut: in two at every place, and into single characters.
fn cut_anywhere(style: &ReplyStyle, text: &str) -> Whole {
    let whole = read(style, &[text]);
    for at in (0..=text.len()).filter(|&at| text.is_char_boundary(at)) {
        let (before, after) = text.split_at(at);
        assert_eq!(read(style, &[before, after]), whole, "cut at {at}");
    }
    let characters: Vec<&str> = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]).collect();
    assert_eq!(read(style, &characters), whole);
    whole
}

fn arguments(whole: &Whole, call: usize) -> Value {
    assert!(whole.calls[call].2, "{whole:?}");
    serde_json::from_str(&whole.calls[call].1).unwrap()
}

#[test]
fn glm_s_parts() {
    let text = "Let me\n see < é</think>\n\nOn it <b>.\n<tool_call>weather<arg_key>city</arg_key><arg_value>北京 <1>\
        </arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value><arg_key>unit</arg_key><arg_value>null</arg_value>\
        <arg_key>opts</arg_key><arg_value>{\"a\": [1, 2.5]}</arg_value></tool_call>\n<tool_call>other\n</tool_call>";
    let whole = cut_anywhere(&glm(Opening::Thinking), text);
    assert_eq!((whole.reasoning.as_str(), whole.text.as_str()), ("Let me\n see < é", "On it <b>."));
    assert_eq!((whole.calls[0].0.as_str(), whole.calls[1].0.as_str()), ("weather", "other"));
    assert_eq!(
        arguments(&whole, 0),
        json!({"city": "北京 <1>", "days": 2, "unit": null, "opts": {"a": [1, 2.5]}})
    );
    assert_eq!(whole.calls[1].1, "{}");
}

#[test]
fn a_schema_decides_what_a_value_is() {
    let call = |key: &str, value: &str| {
        let text =
            format!("<tool_call>weather<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>");
        arguments(&read(&glm(Opening::Answer), &[&text]), 0)[key].clone()
    };
    assert_eq!(call("city", "12"), "12");
    assert_eq!(call("city", "\"quoted\""), "\"quoted\"");
    assert_eq!(call("days", "12"), 12);
    assert_eq!(call("days", "soon"), "soon");
    assert_eq!(call("unit", "12"), "12");
    assert_eq!(call("unit", "null"), Value::Null);
    assert_eq!(call("unknown", "12"), 12);
}

#[test]
fn glm_s_odd_ends() {
    let style = glm(Opening::Thinking);
    let cut = cut_anywhere(
        &style,
        "why</think>so <tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value><arg_k",
    );
    assert_eq!(cut.calls, [("weather".to_owned(), "{\"city\": \"x\"".to_owned(), false)]);
    assert_eq!(cut.text, "so");
    let open = cut_anywhere(&style, "still thinking </thi");
    assert_eq!((open.reasoning.as_str(), open.text.as_str()), ("still thinking </thi", ""));
    let direct = cut_anywhere(&style, "hm<tool_call>weather</tool_call>");
    assert_eq!((direct.reasoning.as_str(), direct.calls.len()), ("hm", 1));
    let toolless = ReplyStyle::new(Some(Family::Glm5Next), Opening::Answer, &[]);
    let text = "use <tool_call>x</tool_call>";
    assert_eq!(cut_anywhere(&toolless, text).text, text, "nothing to call: it is text");
}

#[test]
fn k3_s_parts() {
    let text = "Think <|not|> é<|close|>think<|sep|><|open|>response<|sep|> Hi <|open|> there \n<|close|>response<|sep|>\
        <|open|>tools<|sep|><|open|>call tool=\"we&quot;a&amp;quot;\" index=\"1\"<|sep|><|open|>argument key=\"city\" \
        type=\"string\"<|sep|>12 <|close|>call<|sep|> é<|close|>argument<|sep|><|open|>argument key=\"n\" type=\"object\"<|sep|>\
        {\"a\": [1e-7, null]}<|close|>argument<|sep|><|open|>argument key=\"bad\" type=\"number\"<|sep|>x<|close|>argument\
        <|sep|><|close|>call<|sep|><|open|>call tool=\"now\" index=\"2\"<|sep|><|close|>call<|sep|><|open|>call tool=\"raw\" \
        index=\"3\"<|sep|><|open|>json type=\"object\"<|sep|>{\"q\": <|close|>json<|sep|><|close|>call<|sep|>\
        <|close|>tools<|sep|><|close|>message<|sep|>never";
    let whole = cut_anywhere(&k3(Opening::Thinking), text);
    assert_eq!(whole.reasoning, "Think <|not|> é");
    assert_eq!(whole.text, " Hi <|open|> there \n");
    let names: Vec<&str> = whole.calls.iter().map(|call| call.0.as_str()).collect();
    assert_eq!(names, ["we\"a&quot;", "now", "raw"]);
    let expected = "{\"city\": \"12 <|close|>call<|sep|> é\", \"n\": {\"a\": [1e-07, null]}, \"bad\": \"x\"}";
    assert_eq!(whole.calls[0].1, expected);
    assert_eq!((whole.calls[1].1.as_str(), whole.calls[2].1.as_str()), ("{}", "{\"q\": "));
    assert!(whole.calls.iter().all(|call| call.2));
}

#[test]
fn k3_s_odd_ends() {
    let cut = cut_anywhere(&k3(Opening::Answer), "Hello<|close|>resp");
    assert_eq!(cut.text, "Hello", "half a tag is no text");
    let stray = cut_anywhere(&k3(Opening::Thinking), "a<|close|>think<|sep|>\n forgot its channel");
    assert_eq!((stray.reasoning.as_str(), stray.text.as_str()), ("a", "forgot its channel"));
    let straight = cut_anywhere(&k3(Opening::Thinking), "<|open|>response<|sep|>b<|close|>response<|sep|>");
    assert_eq!((straight.reasoning.as_str(), straight.text.as_str()), ("", "b"));
    let toolless = ReplyStyle::new(Some(Family::KimiK3), Opening::Answer, &[]);
    let text = "b<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"x\" index=\"1\"<|sep|><|close|>call<|sep|>";
    let dropped = cut_anywhere(&toolless, text);
    assert_eq!((dropped.text.as_str(), dropped.calls.len()), ("b", 0));
}

#[test]
fn without_a_family_all_is_text() {
    let text = "a</think>b<|close|>response<|sep|>";
    assert_eq!(cut_anywhere(&ReplyStyle::plain(), text).text, text);
}

#[test]
fn reads_answers_as_the_outside_does() {
    let fixture: Value = serde_json::from_str(include_str!("../../fixtures/replies.json")).unwrap();
    let tools: Vec<Tool> = fixture["tools"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, parameters)| {
            let tool = json!({"type": "function", "function": {"name": name, "parameters": parameters}});
            Tool::new(tool.as_object().unwrap().clone()).unwrap()
        })
        .collect();
    let rows = fixture["rows"].as_array().unwrap();
    assert!(rows.len() > 15);
    for row in rows {
        let family = if row["family"] == "kimi_k3" { Family::KimiK3 } else { Family::Glm5Next };
        let style = ReplyStyle::new(Some(family), Opening::Answer, &tools);
        let whole = cut_anywhere(&style, row["text"].as_str().unwrap());
        assert_eq!(whole.text, row["content"].as_str().unwrap(), "{row}");
        let calls: Vec<Value> = (0..whole.calls.len())
            .filter(|&call| whole.calls[call].2)
            .map(|call| json!([whole.calls[call].0, arguments(&whole, call)]))
            .collect();
        assert_eq!(Value::from(calls), row["calls"], "{row}");
    }
}
