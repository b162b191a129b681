//! `tandem-router`: flags, bind, build, serve, drain.

use anyhow::Context;
use discovery::{InMemory, MembershipService, Registry};
use net::Traffic;
use process::Random;
use router::{Deps, Flags, Listeners, Model, Router};
use telemetry::Meters;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flags: Flags = process::config::parse();
    let _tracing = process::observe::start("tandem-router", &flags.observe)?;
    let drain = flags.observe.drain()?;
    let network = net::system();
    let (grpc, grpc_address) = process::net::bind(&network, Traffic::Calls, "grpc", &flags.grpc).await?;
    let (http, http_address) = process::net::bind(&network, Traffic::Calls, "http", &flags.http).await?;
    let model = Model::open(&flags.model, flags.served_name())
        .with_context(|| format!("--model {}", flags.model.display()))?;
    let registry = InMemory::new();
    let deps =
        Deps { network, members: registry.watch(), meters: Meters::new(), drain, random: Random::system() };
    let router = Router::build(model, flags.config(), deps);
    tracing::info!(grpc = %grpc_address, http = %http_address, "listening");
    let membership = MembershipService::new(registry, flags.lease());
    router.serve(Listeners { grpc, http }, membership, flags.grace()).await?;
    Ok(())
}
