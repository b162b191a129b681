//! Logs to stderr, spans to an OTLP receiver when one is configured.

use opentelemetry::{global, trace::TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For a person at a terminal.
    Text,
    /// One JSON object a line, for a collector.
    Json,
}

/// What [`init`] needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// `service.name` of every span.
    pub service: &'static str,
    /// OTLP gRPC endpoint, for example `http://127.0.0.1:4317`; none: spans stay local.
    pub otlp: Option<String>,
    /// Filter directives, for example `info,engine=debug`.
    pub filter: String,
    /// How log lines look.
    pub format: LogFormat,
}

/// Why tracing could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter does not parse.
    #[error("log filter {filter:?}: {source}")]
    Filter {
        /// As it was given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter refused its endpoint.
    #[error("otlp endpoint {endpoint:?}: {reason}")]
    Otlp {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something else in this process had already set a subscriber.
    #[error("tracing was already set up in this process")]
    Twice,
}

/// Keeps tracing alive; dropping it sends what is still buffered.
#[derive(Debug)]
pub struct Tracing {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "last spans were not exported");
        }
    }
}

/// Starts logs and traces for this process. Call it inside a tokio runtime when an OTLP endpoint is given.
pub fn init(options: &Options) -> Result<Tracing, Error> {
    global::set_text_map_propagator(TraceContextPropagator::new());
    let filter = EnvFilter::try_new(&options.filter)
        .map_err(|source| Error::Filter { filter: options.filter.clone(), source })?;
    let provider = options.otlp.as_deref().map(|endpoint| exporter(options.service, endpoint)).transpose()?;
    let spans = provider
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(options.service)));
    Registry::default()
        .with(filter)
        .with(lines(options.format))
        .with(spans)
        .try_init()
        .map_err(|_| Error::Twice)?;
    Ok(Tracing { provider })
}

fn lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().boxed(),
    }
}

fn exporter(service: &'static str, endpoint: &str) -> Result<SdkTracerProvider, Error> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(|error| Error::Otlp { endpoint: endpoint.to_owned(), reason: error.to_string() })?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build())
}
