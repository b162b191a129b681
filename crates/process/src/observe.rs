//! Flags that every program has: logs, traces, where the configuration comes from, and when to stop.

use serde::Serialize;
use telemetry::{LogFormat, Options, Tracing};

use crate::Drain;

/// Flatten into a program's flags.
#[derive(Debug, Clone, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Observe {
    /// Log filter: a level, or directives such as `info,engine=debug`
    #[arg(long, env = "TANDEM_LOG", default_value = "info")]
    pub log: String,
    /// Print log lines as JSON
    #[arg(long, env = "TANDEM_LOG_JSON")]
    pub log_json: bool,
    /// OTLP gRPC endpoint for traces, such as http://127.0.0.1:4317
    #[arg(long, env = "TANDEM_OTLP")]
    pub otlp: Option<String>,
    /// Stop when stdin ends: a supervisor that dies takes its processes along
    #[arg(long)]
    #[serde(skip)]
    pub stop_with_stdin: bool,
    /// YAML file with any of these keys
    #[arg(long, env = "TANDEM_CONFIG")]
    #[serde(skip)]
    pub config: Option<std::path::PathBuf>,
    /// Print the configuration in force as YAML, and exit
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
}

impl Observe {
    /// The drain that ends this process: on SIGTERM and SIGINT, and with stdin where that is asked for.
    pub fn drain(&self) -> std::io::Result<Drain> {
        let drain = Drain::on_signals()?;
        if self.stop_with_stdin {
            drain.begin_with_stdin();
        }
        Ok(drain)
    }
}

/// Starts logs and traces; keep the result until the end.
pub fn start(service: &'static str, flags: &Observe) -> Result<Tracing, telemetry::Error> {
    telemetry::init(&Options {
        service,
        otlp: flags.otlp.clone(),
        filter: flags.log.clone(),
        format: if flags.log_json { LogFormat::Json } else { LogFormat::Text },
    })
}
