//! Tenants: whose prompt workers are told it is, and what it may use.

use identity::{Limits, Tenant};

use super::*;

fn of(name: &str, limits: Limits) -> Client {
    Client::Of(Tenant { name: name.into(), limits })
}

async fn answer_of(cluster: &Cluster, client: &Client, asked: Asked) -> Result<Vec<GenerateResponse>, Error> {
    let arrival = cluster.router.arrival(Span::none(), client.clone(), None);
    let mut tokens = cluster.router.generate(asked, arrival).await?;
    let mut deltas = Vec::new();
    while let Some(delta) = tokens.next().await {
        deltas.push(delta?);
    }
    Ok(deltas)
}

#[tokio::test]
async fn a_tenant_is_whose_credential_it_is_whatever_the_request_says() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let acme = of("acme", Limits::default());
    let named = |tenant: &str| Asked { tenant: tenant.to_owned(), ..asked(2) };
    for (client, said, told) in [(&acme, "", "acme"), (&acme, "acme", "acme"), (&Client::Anyone, "x", "x")] {
        answer_of(&cluster, client, named(said)).await.unwrap();
        let prompts = cluster.prefilled();
        assert_eq!(prompts.iter().map(|prompt| &*prompt.tenant).collect::<Vec<_>>(), [told]);
    }
    let forged = answer_of(&cluster, &acme, named("other")).await.unwrap_err();
    assert_eq!(reason(&forged), ErrorReason::Forbidden, "{forged}");
    assert!(cluster.prefilled().is_empty());
}

#[tokio::test]
async fn a_tenant_pays_for_what_it_gets_and_not_for_what_it_asked() {
    let cluster = Cluster::start(CONFIG, 1, 1).await;
    let limits = |tokens: u64| Limits { tokens_per_minute: Some(tokens), in_flight: None };
    let prompt = answer_of(&cluster, &Client::Anyone, asked(2)).await.unwrap();
    let prompt = u64::from(prompt.last().unwrap().usage.unwrap().prompt_tokens);
    // Room for one answer of 20 tokens at a time, and for two of 4 in a row.
    let client = of("acme", limits(prompt + 22));
    let mut short = asked(20);
    short.sampling.stop = vec!["d".to_owned()];
    let short = answer_of(&cluster, &client, short).await.unwrap();
    let used = prompt + u64::from(short.last().unwrap().usage.unwrap().completion_tokens);
    let left = prompt + 22 - used;
    assert!(left > prompt + 1, "{left} left");
    let fits = i64::try_from(left - prompt).unwrap();
    let over = answer_of(&cluster, &client, asked(fits + 2)).await.unwrap_err();
    assert_eq!(reason(&over), ErrorReason::RateLimited, "{over}");
    let after = over.fault().retry_after.unwrap();
    assert!(after > Duration::ZERO && after < Duration::from_secs(10), "{after:?}");
    answer_of(&cluster, &client, asked(fits)).await.unwrap();

    let one = of("other", Limits { in_flight: Some(1), tokens_per_minute: None });
    cluster.falls_ill("d0", Ill::Hangs(3));
    let arrival = cluster.router.arrival(Span::none(), one.clone(), None);
    let first = cluster.router.generate(asked(8), arrival).await.unwrap();
    let second = answer_of(&cluster, &one, asked(8)).await.unwrap_err();
    assert_eq!(reason(&second), ErrorReason::RateLimited, "{second}");
    drop(first);
    cluster.falls_ill("d0", Ill::Not);
    cluster.all_is_free().await;
    answer_of(&cluster, &one, asked(8)).await.unwrap();
}
