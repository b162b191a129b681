use std::fmt;
use std::num::NonZeroU32;

/// A number of tokens from the start of a prompt; also the position after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tokens(pub u32);

/// A number of whole hash units from the start of a prompt; also the boundary after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Units(pub u32);

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0)
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} units", self.0)
    }
}

/// Tokens of one hash unit: how far two boundaries lie apart. Independent of the page and of the chunk length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashUnit(NonZeroU32);

impl Default for HashUnit {
    fn default() -> Self {
        Self(NonZeroU32::MIN.saturating_add(511))
    }
}

impl HashUnit {
    /// A unit of `tokens` tokens; none for 0.
    pub fn new(tokens: u32) -> Option<Self> {
        NonZeroU32::new(tokens).map(Self)
    }

    /// The unit's length.
    pub fn tokens(self) -> Tokens {
        Tokens(self.0.get())
    }

    /// Whole units in `tokens`.
    pub fn whole(self, tokens: Tokens) -> Units {
        Units(tokens.0 / self.0)
    }

    /// The boundary at exactly `tokens`; none where `tokens` lies between two.
    pub fn boundary(self, tokens: Tokens) -> Option<Units> {
        tokens.0.is_multiple_of(self.0.get()).then(|| self.whole(tokens))
    }

    /// The position of a boundary; of one beyond every prompt, the largest number.
    pub fn position(self, units: Units) -> Tokens {
        Tokens(units.0.saturating_mul(self.0.get()))
    }
}

impl fmt::Display for HashUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens().fmt(f)
    }
}
