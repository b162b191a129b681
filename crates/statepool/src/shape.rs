/// How much room the state arrays have. The arrays hold one page and one slot more than this: the trash page and the
/// trash slot, which take what padded rows write and are never leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// Leasable latent pages.
    pub pages: u32,
    /// Leasable recurrent slots: the most sequences that can hold state at once.
    pub slots: u32,
    /// Tokens whose latents fit in one page.
    pub page_tokens: u32,
}

impl PoolShape {
    /// Index of the page that padded rows read and write.
    pub fn trash_page(&self) -> PageId {
        PageId(self.pages)
    }

    /// Index of the slot that padded rows read and write.
    pub fn trash_slot(&self) -> SlotId {
        SlotId(self.slots)
    }

    /// Pages that hold the latents of `tokens` tokens.
    pub fn pages_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.page_tokens.max(1))
    }
}

/// Index of a page on the page axis of the latents array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Index of a slot on the slot axis of the recurrent arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u32);
