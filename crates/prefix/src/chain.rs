use crate::{HashUnit, Namespace, PrefixHash, Tokens, Units};

#[cfg(test)]
mod tests;

/// One point where a prompt can be cut, and the name of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Stands for all tokens before the boundary.
    pub hash: PrefixHash,
    /// How many they are.
    pub tokens: Tokens,
}

/// The hashes of a token sequence at all its boundaries. It grows as the sequence does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    namespace: Namespace,
    unit: HashUnit,
    /// Hash k - 1 is that of boundary k.
    hashes: Vec<PrefixHash>,
    /// The tokens after the last boundary: fewer than a unit.
    rest: Vec<u32>,
}

impl Chain {
    /// The chain of `tokens`.
    pub fn of(namespace: &Namespace, unit: HashUnit, tokens: &[u32]) -> Self {
        let mut chain = Self { namespace: *namespace, unit, hashes: Vec::new(), rest: Vec::new() };
        chain.extend(tokens);
        chain
    }

    /// Appends `tokens`; the boundaries there are stay as they are.
    pub fn extend(&mut self, tokens: &[u32]) {
        let length = self.unit.tokens().0 as usize;
        let (first, others) = tokens.split_at((length - self.rest.len()).min(tokens.len()));
        self.rest.extend_from_slice(first);
        if self.rest.len() < length {
            return;
        }
        let full = std::mem::take(&mut self.rest);
        self.close(&full);
        let units = others.chunks_exact(length);
        self.rest.extend_from_slice(units.remainder());
        for unit in units {
            self.close(unit);
        }
    }

    fn close(&mut self, unit: &[u32]) {
        let parent = self.hashes.last().copied().unwrap_or(PrefixHash::ROOT);
        self.hashes.push(self.namespace.hash(parent, unit));
    }

    /// How far the boundaries lie apart.
    pub fn unit(&self) -> HashUnit {
        self.unit
    }

    /// Tokens so far.
    pub fn tokens(&self) -> Tokens {
        let rest = u32::try_from(self.rest.len()).unwrap_or(u32::MAX);
        Tokens(self.unit.position(self.units()).0.saturating_add(rest))
    }

    /// Whole units so far.
    pub fn units(&self) -> Units {
        Units(u32::try_from(self.hashes.len()).unwrap_or(u32::MAX))
    }

    /// The last boundary that a prompt of these tokens may resume at: one token at least must be left to compute, or
    /// there were no logits to draw the next from.
    pub fn usable(&self) -> Units {
        self.unit.whole(Tokens(self.tokens().0.saturating_sub(1)))
    }

    /// The hash of a boundary; none for boundary 0 (before all tokens) and for those beyond the last.
    pub fn hash(&self, at: Units) -> Option<PrefixHash> {
        let index = at.0.checked_sub(1)?;
        self.hashes.get(index as usize).copied()
    }

    /// All boundaries, ascending; the first lies one unit after the start.
    pub fn boundaries(&self) -> impl Iterator<Item = Boundary> {
        self.hashes.iter().zip(0u32..).map(|(hash, index)| Boundary {
            hash: *hash,
            tokens: self.unit.position(Units(index.saturating_add(1))),
        })
    }
}
