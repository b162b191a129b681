//! What every gRPC server here has: health, reflection, keep-alive, and an end.

use std::{io, time::Duration};

use ::net::Listener;
use tonic::{service::Routes, transport::Server};
pub use tonic_health::{ServingStatus, server::HealthReporter};

use crate::{Drain, net::accepted};

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

/// Serves until the drain begins, then lets running calls end; the drain's force cuts them off. A connection of `age` is told to take
/// no more calls, so that its client looks up anew who serves.
pub async fn serve(
    listener: Listener,
    routes: Routes,
    drain: Drain,
    age: Option<Duration>,
) -> Result<(), tonic::transport::Error> {
    let _work = drain.hold();
    let incoming = futures::stream::unfold(listener, |mut listener| async move {
        let (stream, _) = accepted(&mut listener).await;
        Some((Ok::<_, io::Error>(stream), listener))
    });
    let aging = match age {
        Some(age) => Server::builder().max_connection_age(age),
        None => Server::builder(),
    };
    let server = aging
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
