//! `tandem-router`: flags, bind, build, serve, drain.

use anyhow::Context;
use net::Traffic;
use process::Random;
use router::{Clients, Deps, Flags, Joining, Listeners, Model, Router};
use telemetry::Meters;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags: Flags = process::config::parse();
    let _tracing = process::observe::start("tandem-router", &flags.observe)?;
    let drain = flags.observe.drain()?;
    let network = net::cluster(flags.tls.as_deref()).context("--tls")?;
    let (grpc, grpc_address) = process::net::bind(&network, Traffic::Public, "grpc", &flags.grpc).await?;
    let (http, http_address) = process::net::bind(&network, Traffic::Public, "http", &flags.http).await?;
    let members = match &flags.members {
        Some(address) => Some(process::net::bind(&network, Traffic::Calls, "members", address).await?),
        None => None,
    };
    let (members, members_address) = members.unzip();
    let status = match &flags.status {
        Some(address) => Some(process::net::bind(&network, Traffic::Public, "status", address).await?),
        None => None,
    };
    let (status, status_address) = status.unzip();
    let listeners = Listeners { grpc, http, members, status };
    let model = Model::open(&flags.model, flags.served_name())
        .with_context(|| format!("--model {}", flags.model.display()))?;
    let clients = match &flags.credentials {
        Some(file) => Clients::listed(file).context("--credentials")?,
        None => Clients::default(),
    };
    let (meters, random) = (Meters::new(), Random::system());
    let (joining, members) = Joining::of(&flags, &network, &meters, &random).context("--etcd")?;
    let peers = flags.peers.clone();
    let deps = Deps { network, members, meters, drain, random, clients, peers };
    let router = Router::build(model, flags.config(), deps);
    tracing::info!(
        grpc = %grpc_address,
        http = %http_address,
        members = members_address.map(display),
        status = status_address.map(display),
        "listening"
    );
    router.serve(listeners, joining, flags.grace()).await?;
    Ok(())
}
