//! A request's sampling fields as a client wrote them, and the ranges that they must keep.

use std::collections::BTreeMap;

use super::{MAX_LOGPROBS, MAX_STOPS, MIN_TEMPERATURE, Sampling};

/// Sampling as asked for: unset fields take the defaults of [`Sampling`]. Wide types, so that what a client wrote
/// arrives here unchanged and is refused here with its name, not clipped on the way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    pub max_tokens: Option<i64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// 0 and -1 both keep every token.
    pub top_k: Option<i64>,
    pub min_p: Option<f64>,
    pub seed: Option<u64>,
    pub repetition_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub stop: Vec<String>,
    pub stop_token_ids: Vec<i64>,
    pub ignore_eos: bool,
    pub logprobs: Option<i64>,
    pub logit_bias: Vec<(i64, f64)>,
}

/// The client's fault: a field is out of range. The same request will be refused again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Refused {
    /// The field, by the name it has in the public interface.
    pub field: &'static str,
    pub why: String,
}

impl Asked {
    /// The checked meaning, for a model of `vocabulary` tokens. `fresh_seed` serves a request that named no seed: the
    /// caller draws it once, so that every worker of the request sees the same one.
    pub fn checked(self, vocabulary: u32, fresh_seed: u64) -> Result<Sampling, Refused> {
        let default = Sampling::default();
        let temperature = real("temperature", self.temperature, default.temperature, Range::AtLeast(0.0))?;
        Ok(Sampling {
            max_tokens: self.max_tokens.map(max_tokens).transpose()?,
            temperature: if temperature < MIN_TEMPERATURE { 0.0 } else { temperature },
            top_p: real("top_p", self.top_p, default.top_p, Range::AboveTo(0.0, 1.0))?,
            top_k: self.top_k.map_or(Ok(default.top_k), top_k)?,
            min_p: real("min_p", self.min_p, default.min_p, Range::Within(0.0, 1.0))?,
            seed: self.seed.unwrap_or(fresh_seed),
            repetition_penalty: real(
                "repetition_penalty",
                self.repetition_penalty,
                default.repetition_penalty,
                Range::Above(0.0),
            )?,
            presence_penalty: real(
                "presence_penalty",
                self.presence_penalty,
                default.presence_penalty,
                Range::Within(-2.0, 2.0),
            )?,
            frequency_penalty: real(
                "frequency_penalty",
                self.frequency_penalty,
                default.frequency_penalty,
                Range::Within(-2.0, 2.0),
            )?,
            stop: stop(self.stop)?,
            stop_token_ids: token_ids("stop_token_ids", &self.stop_token_ids, vocabulary)?,
            ignore_eos: self.ignore_eos,
            logprobs: self.logprobs.map(logprobs).transpose()?,
            logit_bias: logit_bias(&self.logit_bias, vocabulary)?,
        })
    }
}

/// The values a real field may take; all of them finite.
#[derive(Clone, Copy)]
enum Range {
    AtLeast(f64),
    Above(f64),
    AboveTo(f64, f64),
    Within(f64, f64),
}

impl Range {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(low) => value >= low,
            Self::Above(low) => value > low,
            Self::AboveTo(low, high) => value > low && value <= high,
            Self::Within(low, high) => value >= low && value <= high,
        }
    }

    fn says(self) -> String {
        match self {
            Self::AtLeast(low) => format!("at least {low}"),
            Self::Above(low) => format!("above {low}"),
            Self::AboveTo(low, high) => format!("above {low} and at most {high}"),
            Self::Within(low, high) => format!("from {low} to {high}"),
        }
    }
}

/// The range must hold both as written and as the f32 the program will read: 1e-50 is above 0 only until it is rounded.
fn real(field: &'static str, value: Option<f64>, default: f32, range: Range) -> Result<f32, Refused> {
    let Some(value) = value else { return Ok(default) };
    let narrow = value as f32;
    if narrow.is_finite() && range.holds(value) && range.holds(f64::from(narrow)) {
        return Ok(narrow);
    }
    Err(Refused { field, why: format!("{value} is not a number {}", range.says()) })
}

fn max_tokens(value: i64) -> Result<u32, Refused> {
    u32::try_from(value)
        .ok()
        .filter(|&tokens| tokens > 0)
        .ok_or_else(|| Refused { field: "max_tokens", why: format!("{value} is not from 1 to {}", u32::MAX) })
}

fn top_k(value: i64) -> Result<u32, Refused> {
    if value == -1 {
        return Ok(0);
    }
    // The program counts kept tokens in 32 signed bits, and no vocabulary is larger.
    u32::try_from(value.min(i64::from(i32::MAX)))
        .map_err(|_| Refused { field: "top_k", why: format!("{value} is not -1, 0 or a number of tokens") })
}

fn logprobs(value: i64) -> Result<u32, Refused> {
    u32::try_from(value)
        .ok()
        .filter(|&top| top <= MAX_LOGPROBS)
        .ok_or_else(|| Refused { field: "logprobs", why: format!("{value} is not from 0 to {MAX_LOGPROBS}") })
}

fn stop(texts: Vec<String>) -> Result<Vec<String>, Refused> {
    let refuse = |why| Err(Refused { field: "stop", why });
    if texts.len() > MAX_STOPS {
        return refuse(format!("{} stop strings, at most {MAX_STOPS} are allowed", texts.len()));
    }
    if texts.iter().any(String::is_empty) {
        return refuse("a stop string is empty".to_owned());
    }
    Ok(texts)
}

fn token_ids(field: &'static str, ids: &[i64], vocabulary: u32) -> Result<Vec<u32>, Refused> {
    ids.iter().map(|&id| token_id(field, id, vocabulary)).collect()
}

fn token_id(field: &'static str, id: i64, vocabulary: u32) -> Result<u32, Refused> {
    u32::try_from(id).ok().filter(|&id| id < vocabulary).ok_or_else(|| Refused {
        field,
        why: format!("token id {id} is not in the vocabulary of {vocabulary}"),
    })
}

fn logit_bias(pairs: &[(i64, f64)], vocabulary: u32) -> Result<Vec<(u32, f32)>, Refused> {
    let field = "logit_bias";
    let mut biases = BTreeMap::new();
    for &(id, value) in pairs {
        let id = token_id(field, id, vocabulary)?;
        let bias = real(field, Some(value), 0.0, Range::Within(-100.0, 100.0))
            .map_err(|Refused { why, .. }| Refused { field, why: format!("token id {id}: {why}") })?;
        if biases.insert(id, bias).is_some() {
            return Err(Refused { field, why: format!("token id {id} is given twice") });
        }
    }
    Ok(biases.into_iter().collect())
}
