//! Stop strings over streamed text: no part of a stop is ever shown, and nothing is held back that cannot be one.

#[cfg(test)]
mod tests;

/// Looks for a request's stop strings while its text arrives. Pure.
///
/// The stop that is complete first ends the text; of those complete at the same character, the longest. So the
/// outcome does not depend on where the text was cut into pieces.
#[derive(Debug, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// The end of the text so far: the longest suffix that some stop begins with.
    held: String,
}

/// What a piece of text did.
#[derive(Debug, PartialEq, Eq)]
pub enum Checked {
    /// This much can be shown; maybe nothing.
    Open(String),
    /// A stop is complete: the text before it, and which stop it was.
    Stopped { text: String, stop: String },
}

impl StopMatcher {
    /// Empty stop strings never match.
    pub fn new(stops: Vec<String>) -> Self {
        Self { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: String) -> Checked {
        if self.stops.is_empty() {
            return Checked::Open(text);
        }
        let mut seen = std::mem::take(&mut self.held);
        seen.push_str(&text);
        if let Some((start, stop)) = self.first_match(&seen) {
            seen.truncate(start);
            return Checked::Stopped { text: seen, stop };
        }
        self.held = seen.split_off(seen.len() - self.open_bytes(&seen));
        Checked::Open(seen)
    }

    /// The text still held back, when none follows.
    pub fn finish(self) -> String {
        self.held
    }

    fn first_match(&self, seen: &str) -> Option<(usize, String)> {
        self.stops
            .iter()
            .filter_map(|stop| seen.find(stop.as_str()).map(|start| (start + stop.len(), start, stop)))
            .min_by_key(|&(end, start, _)| (end, start))
            .map(|(_, start, stop)| (start, stop.clone()))
    }

    /// Length of the longest suffix of `seen` with which a stop begins. Both are UTF-8, so equal bytes begin and end
    /// at character borders.
    fn open_bytes(&self, seen: &str) -> usize {
        let longest = |stop: &String| {
            let most = stop.len().min(seen.len() + 1) - 1;
            (1..=most).rev().find(|&n| seen.as_bytes().ends_with(&stop.as_bytes()[..n])).unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}
