use std::{io::Write, time::Duration};

use super::{Request, read};

fn parsed(text: &str) -> anyhow::Result<Vec<Request>> {
    let path = std::env::temp_dir().join(format!("tandem-trace-{}-{}", std::process::id(), text.len()));
    std::fs::File::create(&path)?.write_all(text.as_bytes())?;
    let requests = read(&path, 10, 100);
    std::fs::remove_file(&path)?;
    requests
}

#[test]
fn both_formats_are_read_and_cut_to_the_context() {
    let mooncake =
        "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [1]}\n";
    let cut = Request { at: Some(Duration::from_millis(27482)), prompt: 99, output: 1 };
    assert_eq!(parsed(mooncake).unwrap(), [cut]);
    let azure =
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.5,37,40\n2023-11-16 18:18:04.0,9,200\n";
    let second = Request { at: Some(Duration::from_millis(60500)), prompt: 9, output: 91 };
    assert_eq!(
        parsed(azure).unwrap(),
        [Request { at: Some(Duration::ZERO), prompt: 37, output: 40 }, second]
    );
    assert!(parsed("a,b\n").is_err());
    assert!(
        format!("{:#}", parsed("TIMESTAMP,x\n2023-11-16 18:17:03,a,1\n").unwrap_err()).contains("line 2")
    );
}
