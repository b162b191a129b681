//! One setting, three spellings: a flag `--some-key`, an environment variable `TANDEM_SOME_KEY`, and a key `some-key`
//! of the YAML file named by `--config`. A flag wins over the environment, which wins over the file.

use std::{env, ffi::OsString, fs, io, path::PathBuf};

use clap::Parser;
use serde::Serialize;
use serde_yaml_ng::{Mapping, Value};

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("config file {path:?}: {source}")]
    Read {
        /// As given by `--config`.
        path: PathBuf,
        /// From the file system.
        source: io::Error,
    },
    /// The file is no YAML mapping.
    #[error("config file {path:?}: {reason}")]
    Syntax {
        /// As given by `--config`.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A key's value is neither a scalar nor a list of scalars.
    #[error("config file, key {key:?}: {reason}")]
    Key {
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Flags are wrong, or help was asked for; clap has the text.
    #[error(transparent)]
    Flags(#[from] clap::Error),
}

/// Reads the configuration of this process. Help, version and `--print-config` print to stdout and exit.
pub fn parse<C: Parser + Serialize>() -> C {
    match parse_from::<C>(env::args_os().collect(), |name| env::var_os(name)) {
        Ok(config) => {
            if env::args_os().any(|arg| arg == "--print-config") {
                print(&config);
                std::process::exit(0);
            }
            config
        }
        Err(Error::Flags(error)) => error.exit(),
        Err(error) => C::command().error(clap::error::ErrorKind::Io, error).exit(),
    }
}

/// [`parse`] with the outside given: `args` (program name first) and the environment.
pub fn parse_from<C: Parser>(
    args: Vec<OsString>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<C, Error> {
    let mut all: Vec<OsString> = args.iter().take(1).cloned().collect();
    let named = flag_value(&args, "--config").or_else(|| environment("TANDEM_CONFIG"));
    if let Some(path) = named {
        for (key, value) in read(PathBuf::from(path))? {
            let variable = format!("TANDEM_{}", key.replace('-', "_").to_uppercase());
            if environment(&variable).is_none() && !given(&args, &key) {
                all.extend(flag(&key, &value)?);
            }
        }
    }
    all.extend(args.into_iter().skip(1));
    Ok(C::try_parse_from(all)?)
}

#[allow(clippy::print_stdout, reason = "this is the program's answer")]
fn print(config: &impl Serialize) {
    match serde_yaml_ng::to_string(config) {
        Ok(text) => print!("{text}"),
        Err(error) => tracing::error!(%error, "configuration can't be printed"),
    }
}

fn read(path: PathBuf) -> Result<Vec<(String, Value)>, Error> {
    let text = fs::read_to_string(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let mapping: Mapping = serde_yaml_ng::from_str(&text)
        .map_err(|error| Error::Syntax { path: path.clone(), reason: error.to_string() })?;
    mapping
        .into_iter()
        .map(|(key, value)| match key {
            Value::String(key) => Ok((key, value)),
            other => Err(Error::Syntax { path: path.clone(), reason: format!("key {other:?} is no text") }),
        })
        .collect()
}

fn flag(key: &str, value: &Value) -> Result<Vec<OsString>, Error> {
    let wrong = |reason: &str| Error::Key { key: key.to_owned(), reason: reason.to_owned() };
    match value {
        Value::Null | Value::Bool(false) => Ok(Vec::new()),
        Value::Bool(true) => Ok(vec![format!("--{key}").into()]),
        Value::Number(number) => Ok(vec![format!("--{key}={number}").into()]),
        Value::String(text) => Ok(vec![format!("--{key}={text}").into()]),
        Value::Sequence(items) => {
            let flags: Result<Vec<_>, _> = items.iter().map(|item| flag(key, item)).collect();
            Ok(flags?.concat())
        }
        Value::Mapping(_) | Value::Tagged(_) => Err(wrong("wants a text, a number, true, false or a list")),
    }
}

fn flag_value(args: &[OsString], name: &str) -> Option<OsString> {
    let mut args = args.iter().filter_map(|arg| arg.to_str());
    while let Some(arg) = args.next() {
        if arg == name {
            return args.next().map(OsString::from);
        }
        if let Some(value) = arg.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value.into());
        }
    }
    None
}

fn given(args: &[OsString], key: &str) -> bool {
    let flag = format!("--{key}");
    args.iter()
        .filter_map(|arg| arg.to_str())
        .any(|arg| arg.strip_prefix(&flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
}

#[cfg(test)]
mod tests;
