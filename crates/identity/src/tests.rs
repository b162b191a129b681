use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::{Credentials, Denied, Error, Limits, Over, Quotas, Tenant};

/// By PyJWT.
#[derive(Deserialize)]
struct Tokens {
    now: u64,
    jwks: serde_json::Value,
    right: BTreeMap<String, String>,
    wrong: BTreeMap<String, Vec<String>>,
    of_guests: String,
}

fn tokens() -> Tokens {
    serde_json::from_str(include_str!("tests/tokens.json")).unwrap()
}

fn digest(key: &str) -> String {
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Files {
    folder: TempDir,
}

impl Files {
    fn new(config: &str) -> Self {
        let files = Self { folder: TempDir::new().unwrap() };
        fs::write(files.folder.path().join("jwks.json"), tokens().jwks.to_string()).unwrap();
        files.write(config);
        files
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("credentials.yaml")
    }

    fn write(&self, config: &str) {
        let jwks = self.folder.path().join("jwks.json");
        fs::write(self.path(), config.replace("JWKS", &jwks.to_string_lossy())).unwrap();
    }

    fn open(&self) -> Result<Credentials, Error> {
        Credentials::open(&self.path())
    }
}

const JWT: &str = "jwt: {jwks: JWKS, issuer: 'https://issuer.test', audience: tandem}\n";

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(tokens().now)
}

#[test]
fn tokens_of_another_implementation_stand_for_their_tenant() {
    let credentials = Files::new(&format!("tenants: {{acme: {{in-flight: 3}}}}\n{JWT}")).open().unwrap();
    for (name, token) in tokens().right {
        let tenant = credentials.identify(Some(&format!("Bearer {token}")), now());
        let limits = Limits { in_flight: Some(3), tokens_per_minute: None };
        assert_eq!(tenant, Ok(Tenant { name: "acme".into(), limits }), "{name}");
    }
    for (why, wrong) in tokens().wrong {
        for token in wrong {
            let denied = credentials.identify(Some(&format!("Bearer {token}")), now()).unwrap_err();
            assert_eq!(denied, Denied::BadToken(why.clone()), "{token}");
            assert!(!denied.is_known());
        }
    }
}

#[test]
fn tokens_of_tenants_that_are_not_listed_need_limits_for_others() {
    let header = format!("bearer {}", tokens().of_guests);
    let closed = Files::new(&format!("tenants: {{acme: {{}}}}\n{JWT}")).open().unwrap();
    let denied = closed.identify(Some(&header), now()).unwrap_err();
    assert_eq!((denied.clone(), denied.is_known()), (Denied::UnknownTenant("guests".to_owned()), true));
    let open = Files::new(&format!("others: {{tokens-per-minute: 9}}\n{JWT}")).open().unwrap();
    let tenant = open.identify(Some(&header), now()).unwrap();
    assert_eq!((&*tenant.name, tenant.limits.tokens_per_minute), ("guests", Some(9)));
}

#[test]
fn keys_are_known_by_their_digest_and_never_repeated() {
    let config = format!(
        "tenants:\n  acme: {{keys: ['sha256:{}', 'sha256:{}']}}\n  other: {{keys: ['sha256:{}']}}\n",
        digest("one"),
        digest("two.two.two"),
        digest("three")
    );
    let credentials = Files::new(&config).open().unwrap();
    let name = |header: &str| credentials.identify(Some(header), now()).map(|tenant| tenant.name.to_string());
    for (header, tenant) in
        [("Bearer one", "acme"), ("bearer  two.two.two", "acme"), ("BEARER three", "other")]
    {
        assert_eq!(name(header).as_deref(), Ok(tenant));
    }
    assert_eq!(credentials.identify(None, now()), Err(Denied::Missing));
    for header in ["one", "Bearer", "Bearer ", "Basic one", "Bearer one two"] {
        assert_eq!(name(header), Err(Denied::NotBearer), "{header}");
    }
    for secret in ["onE", "four", "a.b.c", &digest("one")] {
        let denied = name(&format!("Bearer {secret}")).unwrap_err();
        assert_eq!(denied, Denied::UnknownKey);
        assert!(!format!("{denied} {denied:?}").contains(secret));
    }
    assert!(!format!("{credentials:?}").contains(&digest("one")));
}

#[test]
fn what_is_wrong_with_the_configuration_is_named() {
    let key = format!("sha256:{}", digest("one"));
    let twice = format!("tenants: {{a: {{keys: ['{key}']}}, b: {{keys: ['{key}']}}}}");
    let cases = [
        ("tenants: {a: {keys: [one]}}", "a key must be `sha256:`"),
        ("tenants: {a: {}}", "tenants: nobody has a key"),
        ("tenant: {}", "unknown field `tenant`"),
        ("tenants: {a: {tokens-per-minute: -1}}", "tokens-per-minute"),
        (&twice, "tenants.b.keys: a key is \"a\"'s already"),
        (
            "jwt: {jwks: /nowhere/keys.json, issuer: i, audience: a}",
            "jwt.jwks: /nowhere/keys.json: No such file",
        ),
        (
            "jwt: {jwks: 'https://127.0.0.1:1/keys', issuer: i, audience: a}",
            "jwt.jwks: https://127.0.0.1:1/keys",
        ),
        ("jwt: {jwks: 'https://127.0.0.1:1/keys', ca: /nowhere, issuer: i, audience: a}", "jwt.ca: /nowhere"),
    ];
    for (config, said) in cases {
        let error = Files::new(config).open().unwrap_err().to_string();
        assert!(error.contains(said), "{config}: {error}");
    }
    let files = Files::new(JWT);
    for keys in ["{}", "{\"keys\": [{\"kty\": \"oct\", \"k\": \"c2VjcmV0\"}]}"] {
        fs::write(files.folder.path().join("jwks.json"), keys).unwrap();
        assert!(matches!(files.open(), Err(Error::Keys { .. })), "{keys}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_in_force_and_wrong_ones_are_not() {
    let config = |key: &str| format!("tenants: {{acme: {{keys: ['sha256:{}']}}}}", digest(key));
    let files = Files::new(&config("old"));
    let credentials = files.open().unwrap();
    tokio::spawn(credentials.clone().keep());
    let known = |key: &str| credentials.identify(Some(&format!("Bearer {key}")), now()).is_ok();
    let becomes = async |key: &str| {
        for _ in 0..200 {
            if known(key) {
                return true;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    };
    assert!(known("old"));
    files.write(&config("new"));
    assert!(becomes("new").await && !known("old"));
    files.write("tenants: {acme: {keys: [broken]}}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(known("new"));
    files.write(&config("newer"));
    assert!(becomes("newer").await && !known("new"));
}

#[test]
fn tokens_come_back_with_time_and_from_what_was_not_used() {
    let quotas = Quotas::default();
    let limits = Limits { tokens_per_minute: Some(600), in_flight: Some(2) };
    let (tenant, other) = (Tenant { name: "a".into(), limits }, Tenant { name: "b".into(), limits });
    let began = Instant::now();
    let at = |seconds: u64| began + Duration::from_secs(seconds);
    let mut first = quotas.charge(&tenant, 500, at(0)).unwrap();
    let after = |tokens, now| match quotas.charge(&tenant, tokens, now) {
        Err(Over::Tokens { limit: 600, after }) => after.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(after(200, at(0)), 10);
    assert_eq!(after(200, at(4)), 6);
    assert!(quotas.charge(&other, 600, at(4)).is_ok());
    let second = quotas.charge(&tenant, 200, at(10)).unwrap();
    assert_eq!(quotas.charge(&tenant, 0, at(10)).unwrap_err(), Over::InFlight { limit: 2 });
    first.used(100);
    drop(first);
    drop(quotas.charge(&tenant, 400, at(10)).unwrap());
    drop(second);
    // 600 are left: a minute's worth is the most there can be, and enough to begin more.
    let mut long = quotas.charge(&tenant, 1800, at(10)).unwrap();
    long.used(1800);
    drop(long);
    assert_eq!(after(1, at(10)), 120);
    assert!(quotas.charge(&tenant, 1, at(131)).is_ok());
    let free = Tenant { name: "c".into(), limits: Limits::default() };
    let _many: Vec<_> = (0..100).map(|_| quotas.charge(&free, u64::MAX, at(0)).unwrap()).collect();
}
