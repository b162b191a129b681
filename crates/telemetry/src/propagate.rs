//! W3C trace context in and out of gRPC metadata and HTTP headers.

use opentelemetry::{
    Context, global,
    propagation::{Extractor, Injector},
};
use tonic::metadata::{Ascii, MetadataKey, MetadataMap};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Makes `span` a child of the trace that a gRPC caller carried along, if it carried one.
pub fn from_metadata(span: &Span, metadata: &MetadataMap) {
    adopt(span, &Carried(metadata));
}

/// Makes `span` a child of the trace that an HTTP caller carried along, if it carried one.
pub fn from_headers(span: &Span, headers: &http::HeaderMap) {
    adopt(span, &Headers(headers));
}

/// Writes `span`'s trace context into the metadata of an outgoing call.
pub fn into_metadata(span: &Span, metadata: &mut MetadataMap) {
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&span.context(), &mut Carrying(metadata));
    });
}

fn adopt(span: &Span, carrier: &dyn Extractor) {
    let parent: Context = global::get_text_map_propagator(|propagator| propagator.extract(carrier));
    // Without an OTLP layer there is nothing to link to; the span works on its own.
    let _ = span.set_parent(parent);
}

struct Carried<'a>(&'a MetadataMap);

impl Extractor for Carried<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0
            .keys()
            .filter_map(|key| match key {
                tonic::metadata::KeyRef::Ascii(key) => Some(key.as_str()),
                tonic::metadata::KeyRef::Binary(_) => None,
            })
            .collect()
    }
}

struct Headers<'a>(&'a http::HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

struct Carrying<'a>(&'a mut MetadataMap);

impl Injector for Carrying<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(key), Ok(value)) = (MetadataKey::<Ascii>::from_bytes(key.as_bytes()), value.parse()) {
            self.0.insert(key, value);
        }
    }
}
