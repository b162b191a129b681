use std::io;

use hyper_util::rt::TokioIo;
use tonic::transport::Uri;
use tonic::transport::server::Connected;
use tower::Service;

use crate::{AnyStream, Network, Traffic};

/// Makes the connections of gRPC clients, for traffic of a kind: for `Endpoint::connect_with_connector`.
pub fn connector(
    network: &Network,
    traffic: Traffic,
) -> impl Service<Uri, Response = TokioIo<AnyStream>, Error = io::Error, Future: Send> + Clone + Send + use<>
{
    let network = Network::clone(network);
    tower::service_fn(move |uri: Uri| {
        let network = Network::clone(&network);
        async move {
            let no_host = || io::Error::new(io::ErrorKind::InvalidInput, format!("{uri} names no host"));
            let address = uri.authority().ok_or_else(no_host)?.as_str().to_owned();
            Ok(TokioIo::new(network.connect(&address, traffic).await?))
        }
    })
}

/// A gRPC server accepts connections of whatever network; it asks nothing of them.
impl Connected for AnyStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
