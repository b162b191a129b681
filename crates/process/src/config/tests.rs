use std::{ffi::OsString, io::Write};

use clap::Parser;

use super::parse_from;

#[derive(Debug, Parser)]
struct Flags {
    #[arg(long, env = "TANDEM_TEST_SLOTS", default_value_t = 8)]
    slots: u32,
    #[arg(long, default_value_t = 64)]
    page_tokens: u32,
    #[arg(long)]
    poison: bool,
    #[arg(long)]
    config: Option<String>,
}

fn parse(yaml: &str, more: &[&str], env: &[(&str, &str)]) -> Result<Flags, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(yaml.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let args: Vec<OsString> = ["test", "--config", path].iter().chain(more).map(OsString::from).collect();
    parse_from(args, |name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        .map_err(|error| error.to_string())
}

#[test]
fn a_flag_wins_over_the_environment_which_wins_over_the_file() {
    let yaml = "slots: 3\npage-tokens: 16\npoison: true\n";
    let flags = parse(yaml, &[], &[]).unwrap();
    assert_eq!((flags.slots, flags.page_tokens, flags.poison), (3, 16, true));
    assert!(flags.config.is_some());
    assert_eq!(parse(yaml, &["--slots=5"], &[]).unwrap().slots, 5);
    // With the variable set the file's key is left out, so that clap sees the variable.
    assert_eq!(parse(yaml, &[], &[("TANDEM_SLOTS", "4")]).unwrap().slots, 8);
}

#[test]
fn wrong_files_are_refused_by_name() {
    assert!(parse("slotz: 3\n", &[], &[]).unwrap_err().contains("--slotz"));
    assert!(parse("slots: {a: 1}\n", &[], &[]).unwrap_err().contains("slots"));
    assert!(parse("- 1\n", &[], &[]).unwrap_err().contains("config file"));
    assert!(parse("slots: many\n", &[], &[]).unwrap_err().contains("many"));
}
