//! `tandem-decode-worker`: flags, bind, load, serve, drain.

use anyhow::Context;
use decode_worker::{Deps, Flags, build};
use host::Host;
use net::Traffic;
use process::Random;
use worker::Shell;

fn main() -> anyhow::Result<()> {
    let flags: Flags = process::config::parse();
    process::threads::limit(flags.worker.threads).context("--threads")?;
    tokio::runtime::Runtime::new()?.block_on(run(flags))
}

async fn run(flags: Flags) -> anyhow::Result<()> {
    let tracing = process::observe::start("tandem-decode-worker", &flags.worker.observe)?;
    let drain = flags.worker.observe.drain()?;
    let network = net::cluster(flags.worker.tls.as_deref()).context("--tls")?;
    let shell = Shell::bind(network.clone(), &flags.worker, drain.clone(), Random::system()).await?;
    let (data, _) = process::net::bind(&network, Traffic::Bulk, "data", &flags.data).await?;
    let at = shell.serve_http();
    let loading = {
        let (flags, meters) = (flags.clone(), at.meters.clone());
        tokio::task::spawn_blocking(move || {
            Host::load(&flags.worker, engine::Role::Decode, None, flags.batches.clone(), None, &meters)
        })
    };
    let host = tokio::select! {
        host = loading => host?.context("model")?,
        () = drain.begun() => {
            drop(tracing);
            Host::leave_loading()
        }
    };
    build(flags, Deps { host, at, data })?.serve().await?;
    Ok(())
}
