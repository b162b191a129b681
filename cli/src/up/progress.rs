//! What a person sees while a cluster starts.

use std::{collections::HashMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::state::State;

/// A line for each process until it is ready; afterwards only what needs a person.
pub(super) struct Progress {
    all: MultiProgress,
    bars: HashMap<String, ProgressBar>,
    style: ProgressStyle,
}

impl Progress {
    pub(super) fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {prefix:<12} {bar:24} {pos}/{len} {wide_msg}");
        Self {
            all: MultiProgress::new(),
            bars: HashMap::new(),
            style: style.unwrap_or_else(|_| ProgressStyle::default_bar()),
        }
    }

    pub(super) fn starting(&mut self, name: &str) {
        let bar =
            self.all.add(ProgressBar::new(1)).with_style(self.style.clone()).with_prefix(name.to_owned());
        bar.set_message("starting");
        bar.enable_steady_tick(Duration::from_millis(120));
        self.bars.insert(name.to_owned(), bar);
    }

    pub(super) fn compiling(&mut self, name: &str, what: &str, done: u64, total: u64) {
        if let Some(bar) = self.bars.get(name) {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(format!("compiled {what}"));
        }
    }

    pub(super) fn ready(&mut self, name: &str) {
        if let Some(bar) = self.bars.remove(name) {
            bar.finish_and_clear();
            self.say(&format!("  {name:<12} ready in {:.1} s", bar.elapsed().as_secs_f64()));
        }
    }

    pub(super) fn line(&self, name: &str, line: &str) {
        self.say(&format!("  {name:<12} {line}"));
    }

    pub(super) fn announce(&self, state: &State) {
        self.say(&format!(
            "tandem is up\n  gRPC  {}\n  HTTP  http://{}/v1\n  stop  Ctrl-C",
            state.router.grpc, state.router.http
        ));
    }

    #[allow(clippy::print_stderr, reason = "indicatif drops lines when stderr is no terminal")]
    fn say(&self, text: &str) {
        self.all.suspend(|| eprintln!("{text}"));
    }
}
