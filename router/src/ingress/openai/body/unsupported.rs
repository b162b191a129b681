//! Fields of OpenAI's that change the answer in ways Tandem does not have: refused by name rather than ignored, unless
//! they say what would happen anyway.

use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Unsupported {
    functions: Value,
    function_call: Value,
    response_format: Value,
    modalities: Value,
    audio: Value,
    prediction: Value,
    web_search_options: Value,
    suffix: Value,
    echo: Value,
    best_of: Value,
}

impl Unsupported {
    pub(super) fn refuse(&self) -> Result<(), Error> {
        let no_choice = |value: &Value| value == "none" || value == "auto";
        let fields: [(&str, &Value, bool); 10] = [
            ("functions", &self.functions, is_empty(&self.functions)),
            ("function_call", &self.function_call, no_choice(&self.function_call)),
            ("response_format", &self.response_format, self.response_format["type"] == "text"),
            ("modalities", &self.modalities, self.modalities == serde_json::json!(["text"])),
            ("audio", &self.audio, false),
            ("prediction", &self.prediction, false),
            ("web_search_options", &self.web_search_options, false),
            ("suffix", &self.suffix, self.suffix == ""),
            ("echo", &self.echo, self.echo == false),
            ("best_of", &self.best_of, self.best_of == 1),
        ];
        match fields.iter().find(|(_, value, harmless)| !value.is_null() && !harmless) {
            Some((name, ..)) => Err(Error::invalid(*name, "is not supported")),
            None => Ok(()),
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}
