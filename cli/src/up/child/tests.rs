use super::{Event, parse};

#[test]
fn log_lines_become_events() {
    let ready = r#"{"timestamp":"t","level":"INFO","fields":{"message":"ready","grpc":"a:1","http":"b:2","data":"c:3","worker":"d"},"target":"worker"}"#;
    let Some(Event::Ready(addresses)) = parse(ready.into()) else { panic!("not ready") };
    assert_eq!((addresses.grpc.as_str(), addresses.data.as_deref()), ("a:1", Some("c:3")));
    let joined = r#"{"level":"INFO","fields":{"message":"joined","worker":"d"},"target":"discovery"}"#;
    assert!(matches!(parse(joined.into()), Some(Event::Joined)));
    let compiled = r#"{"level":"INFO","fields":{"message":"compiled","what":"decode 8","done":3,"total":9},"target":"engine"}"#;
    assert!(matches!(parse(compiled.into()), Some(Event::Compiling { done: 3, total: 9, .. })));
    assert!(parse(r#"{"level":"INFO","fields":{"message":"x"},"target":"t"}"#.into()).is_none());
    let warned = parse(r#"{"level":"WARN","fields":{"message":"slow","ms":7},"target":"t"}"#.into());
    assert!(matches!(warned, Some(Event::Line(line)) if line.contains("slow") && line.contains("ms=7")));
    assert!(matches!(parse("thread panicked".into()), Some(Event::Line(_))));
}
