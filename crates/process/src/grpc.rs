//! What every gRPC server here has: health, reflection, keep-alive, and an end.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{service::Routes, transport::Server};
pub use tonic_health::{ServingStatus, server::HealthReporter};

use crate::Drain;

/// Health and reflection (v1 and v1alpha), to which a program adds its services. `descriptors` is the encoded
/// `FileDescriptorSet` that reflection shows.
pub fn base(descriptors: &'static [u8]) -> Result<(HealthReporter, Routes), tonic_reflection::server::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let set = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(descriptors)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let routes = Routes::new(health).add_service(set().build_v1()?).add_service(set().build_v1alpha()?);
    Ok((reporter, routes))
}

/// Serves until the drain begins, then lets running calls end; the drain's force cuts them off.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    drain: Drain,
) -> Result<(), tonic::transport::Error> {
    let _work = drain.hold();
    let incoming = Nodelay::new(listener);
    let server = Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(1)))
        .http2_keepalive_timeout(Some(Duration::from_secs(3)))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, drain.begun());
    tokio::select! {
        served = server => served,
        () = drain.forced() => Ok(()),
    }
}

/// Accepted sockets send every write at once: tokens are small and must not wait for an acknowledgement.
struct Nodelay(TcpListenerStream);

impl Nodelay {
    fn new(listener: TcpListener) -> Self {
        Self(TcpListenerStream::new(listener))
    }
}

impl tokio_stream::Stream for Nodelay {
    type Item = std::io::Result<tokio::net::TcpStream>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::pin::Pin::new(&mut self.0).poll_next(context).map(|next| {
            next.map(|accepted| accepted.and_then(|stream| stream.set_nodelay(true).map(|()| stream)))
        })
    }
}
