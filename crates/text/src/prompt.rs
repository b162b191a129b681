//! A rendered conversation: the template's own markers apart from everything that anyone else wrote.

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// One special token, by its name; only templates write these.
    Marker(String),
    /// Ordinary text, tokenized by itself: whatever it spells, it becomes no special token.
    Text(String),
    /// Text of a template, in which special tokens are written by their names.
    Template(String),
}

impl Segment {
    /// What it looks like.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Marker(text) | Self::Text(text) | Self::Template(text) => text,
        }
    }
}

/// A prompt on its way to the tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    segments: Vec<Segment>,
}

impl Prompt {
    /// In order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Bytes of the text.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.as_str().len()).sum()
    }

    /// All of it is a template's text.
    pub(crate) fn of_template(text: String) -> Self {
        Self { segments: vec![Segment::Template(text)] }
    }

    pub(crate) fn marker(&mut self, name: &str) {
        self.segments.push(Segment::Marker(name.to_owned()));
    }

    /// Text that goes on where the text before it ended: the two are tokenized as one.
    pub(crate) fn text(&mut self, text: &str) {
        match self.segments.last_mut() {
            Some(Segment::Text(before)) => before.push_str(text),
            _ => self.separate(text),
        }
    }

    /// Text that is tokenized apart from the text before it.
    pub(crate) fn separate(&mut self, text: &str) {
        if !text.is_empty() {
            self.segments.push(Segment::Text(text.to_owned()));
        }
    }

    /// Text of a template, in which each of `markers` is one.
    pub(crate) fn template(&mut self, text: &str, markers: &[&str]) {
        let mut rest = text;
        while let Some((at, marker)) = first_of(rest, markers) {
            if at > 0 {
                self.text(&rest[..at]);
            }
            self.marker(marker);
            rest = &rest[at + marker.len()..];
        }
        if !rest.is_empty() {
            self.text(rest);
        }
    }
}

impl std::fmt::Display for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.segments.iter().try_for_each(|segment| f.write_str(segment.as_str()))
    }
}

/// The marker that begins first in `text`; of those that begin together, the longest.
fn first_of<'m>(text: &str, markers: &[&'m str]) -> Option<(usize, &'m str)> {
    markers
        .iter()
        .filter_map(|&marker| text.find(marker).map(|at| (at, marker)))
        .min_by_key(|(at, marker)| (*at, std::cmp::Reverse(marker.len())))
}
