use clap::Parser;

use super::*;

#[derive(Debug, clap::Parser)]
struct Args {
    #[command(flatten)]
    numerics: Numerics,
}

fn parsed(flags: &[String]) -> Result<Numerics, clap::Error> {
    let args = std::iter::once("worker".to_owned()).chain(flags.iter().cloned());
    Args::try_parse_from(args).map(|args| args.numerics)
}

fn read(flags: &[&str]) -> Result<Numerics, clap::Error> {
    parsed(&flags.iter().map(|&flag| flag.to_owned()).collect::<Vec<_>>())
}

#[test]
fn what_is_passed_on_reads_the_same() {
    for flags in [&[][..], &["--drafts=0"], &["--drafts=5", "--float=bf16"], &["--int8"]] {
        let said = read(flags).unwrap();
        let again = parsed(&said.to_flags()).unwrap();
        assert_eq!((again.drafts, again.float, again.int8), (said.drafts, said.float, said.int8));
    }
    let last = read(&["--drafts=1", "--float=f32", "--drafts=2", "--float=bf16"]).unwrap();
    assert_eq!((last.drafts, last.float), (Some(2), Float::Bf16));
}

#[test]
fn what_no_program_is_made_for_is_refused() {
    for flag in ["--drafts=6", "--drafts=-1", "--float=f16"] {
        assert!(read(&[flag]).unwrap_err().to_string().contains(&flag[..7]), "{flag}");
    }
}
