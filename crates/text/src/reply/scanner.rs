//! Markers in streamed text.

use super::Part;

/// Text that is not sorted yet.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    held: String,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// Text in which no marker is.
    Text(String),
    /// A marker, by its place in the list.
    Marker(usize),
}

/// A family's answers as states, text and markers.
pub(super) trait Grammar {
    fn scanner(&mut self) -> &mut Scanner;

    /// What may come in the present state.
    fn markers(&self) -> &'static [&'static str];

    /// Text of the present state.
    fn text(&mut self, text: String, parts: &mut Vec<Part>);

    /// A marker of the present state.
    fn marker(&mut self, marker: &str, parts: &mut Vec<Part>);

    /// What the next piece of the output makes sure.
    fn push(&mut self, text: &str) -> Vec<Part> {
        self.scanner().push(text);
        let mut parts = Vec::new();
        loop {
            let markers = self.markers();
            match self.scanner().next(markers) {
                None => return parts,
                Some(Scan::Text(text)) => self.text(text, &mut parts),
                Some(Scan::Marker(index)) => self.marker(markers[index], &mut parts),
            }
        }
    }
}

impl Scanner {
    pub(super) fn push(&mut self, text: &str) {
        self.held.push_str(text);
    }

    /// What comes next, if that is sure. `markers`: none begins another.
    pub(super) fn next(&mut self, markers: &[&str]) -> Option<Scan> {
        let found = markers
            .iter()
            .enumerate()
            .filter_map(|(index, marker)| self.held.find(marker).map(|at| (at, index)))
            .min();
        match found {
            Some((0, index)) => {
                self.held.drain(..markers[index].len());
                Some(Scan::Marker(index))
            }
            Some((at, _)) => Some(Scan::Text(self.take(at))),
            None => {
                let sure = self.held.len() - self.open_bytes(markers);
                (sure > 0).then(|| Scan::Text(self.take(sure)))
            }
        }
    }

    /// What no marker came of.
    pub(super) fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    fn take(&mut self, bytes: usize) -> String {
        let rest = self.held.split_off(bytes);
        std::mem::replace(&mut self.held, rest)
    }

    /// Length of the longest end of the text with which a marker begins.
    fn open_bytes(&self, markers: &[&str]) -> usize {
        let open = |marker: &&str| {
            let most = (marker.len() - 1).min(self.held.len());
            (1..=most).rev().find(|&n| self.held.as_bytes().ends_with(&marker.as_bytes()[..n])).unwrap_or(0)
        };
        markers.iter().map(open).max().unwrap_or(0)
    }
}
