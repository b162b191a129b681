use clap::Parser;

use super::*;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    flags: Flags,
}

fn reached(advertise: Option<&str>, bound: &str) -> Result<String, String> {
    let more = advertise.map(|host| format!("--advertise={host}"));
    let args = ["worker", "--model=m"].into_iter().map(str::to_owned).chain(more);
    let flags = Program::parse_from(args).flags;
    flags.reached_at("grpc", bound.parse().unwrap()).map_err(|error| error.to_string())
}

#[test]
fn others_are_told_an_address_that_they_can_reach() {
    for (advertise, bound, told) in [
        (None, "10.0.0.7:50", "10.0.0.7:50"),
        (None, "[fd00::7]:50", "[fd00::7]:50"),
        (Some("worker-0.pool"), "0.0.0.0:50", "worker-0.pool:50"),
        (Some("fd00::7"), "[::]:50", "[fd00::7]:50"),
        (Some("[fd00::7]"), "[::]:50", "[fd00::7]:50"),
        (Some("10.0.0.8"), "127.0.0.1:50", "10.0.0.8:50"),
    ] {
        assert_eq!(reached(advertise, bound).as_deref(), Ok(told));
    }
    for bound in ["0.0.0.0:50", "[::]:50"] {
        let refused = reached(None, bound).unwrap_err();
        assert!(
            refused.starts_with(&format!("--grpc {bound}: ")) && refused.contains("--advertise"),
            "{refused}"
        );
    }
}
