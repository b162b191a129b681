use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

/// How prefill is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefill {
    /// Seconds of one worker's work that may wait for each.
    pub seconds: f64,
    /// Share of the time that each may compute.
    pub busy: f64,
}

/// How decode is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decode {
    /// Share of its rooms that each may have taken.
    pub rooms: f64,
    /// Longest step.
    pub itl: Option<Duration>,
}

/// A role and how it is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Prefill(Prefill),
    Decode(Decode),
}

/// How an autoscaler asks: its trigger's metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub role: Role,
    /// What is averaged is averaged over this.
    pub window: Duration,
    /// Workers that were needed within this are kept: at least as long as a new one takes to come.
    pub hold: Duration,
    /// Workers beyond those that are needed, while there is anything to do.
    pub spares: u32,
}

/// Metadata that is not understood. Whoever wrote the trigger has to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct Refused {
    pub key: String,
    pub why: String,
}

/// Keys that KEDA itself adds or reads.
const FOREIGN: [&str; 5] = ["scalerAddress", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey"];

impl Settings {
    /// From a trigger's metadata: `role` (`prefill` or `decode`), and where something else than the default is wanted `waitSeconds`
    /// (1.5), `busy` (0.8), `rooms` (0.8), `itlMillis`, `windowSeconds` (30), `holdSeconds` (300), `spares` (0).
    pub fn parse(metadata: &BTreeMap<String, String>) -> Result<Self, Refused> {
        let mut left = Left { metadata: metadata.clone() };
        let role = match left.text("role").as_deref() {
            Some("prefill") => Role::Prefill(Prefill {
                seconds: left.number("waitSeconds", 1.5, above_zero)?,
                busy: left.number("busy", 0.8, share)?,
            }),
            Some("decode") => {
                let millis: Option<f64> = left.given("itlMillis", above_zero)?;
                let itl = millis.map(|millis| Duration::from_secs_f64(millis / 1e3));
                Role::Decode(Decode { rooms: left.number("rooms", 0.8, share)?, itl })
            }
            Some(other) => return Err(refused("role", format!("is {other:?}, neither prefill nor decode"))),
            None => return Err(refused("role", "is missing".to_owned())),
        };
        let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
        let settings = Self {
            role,
            window: seconds(left.number("windowSeconds", 30.0, above_zero)?),
            hold: seconds(left.number("holdSeconds", 300.0, not_below_zero)?),
            spares: left.given("spares", |_| None)?.unwrap_or(0),
        };
        match left.metadata.keys().find(|key| !FOREIGN.contains(&key.as_str())) {
            Some(key) => Err(refused(key, "is not known".to_owned())),
            None => Ok(settings),
        }
    }
}

struct Left {
    metadata: BTreeMap<String, String>,
}

impl Left {
    fn text(&mut self, key: &str) -> Option<String> {
        self.metadata.remove(key)
    }

    fn given<T: FromStr + Copy>(
        &mut self,
        key: &str,
        wrong: impl Fn(T) -> Option<&'static str>,
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let number: T =
            text.parse().map_err(|_| refused(key, format!("is {text:?}, no number that it can be")))?;
        match wrong(number) {
            Some(why) => Err(refused(key, format!("is {text}, {why}"))),
            None => Ok(Some(number)),
        }
    }

    fn number(
        &mut self,
        key: &str,
        default: f64,
        wrong: impl Fn(f64) -> Option<&'static str>,
    ) -> Result<f64, Refused> {
        Ok(self.given(key, wrong)?.unwrap_or(default))
    }
}

/// Some years: no more than this makes sense, or fits a time.
const MOST: f64 = 1e8;

fn above_zero(number: f64) -> Option<&'static str> {
    (!(number > 0.0 && number < MOST)).then_some("which must be above 0")
}

fn not_below_zero(number: f64) -> Option<&'static str> {
    (!(0.0..MOST).contains(&number)).then_some("which must not be below 0")
}

fn share(number: f64) -> Option<&'static str> {
    (!(number > 0.0 && number <= 1.0)).then_some("which must be above 0, and at most 1")
}

fn refused(key: &str, why: String) -> Refused {
    Refused { key: key.to_owned(), why }
}
