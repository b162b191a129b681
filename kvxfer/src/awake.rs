/// A transfer of at most this many bytes is waited for awake.
const MOST_BYTES: u64 = 8 << 20;
/// Looks at the connections before a side goes to sleep: some tens of microseconds, about what it takes to be woken.
const LOOKS: u32 = 64;

/// How long a side of a small transfer stays awake after something has happened. To be woken costs as much as a small state takes to
/// cross; of a large one it is nothing. Counted and not timed, so that virtual time does not stand still for it.
#[derive(Debug)]
pub(crate) struct Awake {
    most: u32,
    left: u32,
}

impl Awake {
    pub(crate) fn for_bytes(bytes: u64) -> Awake {
        let most = if bytes <= MOST_BYTES { LOOKS } else { 0 };
        Awake { most, left: most }
    }

    /// Something has happened.
    pub(crate) fn renew(&mut self) {
        self.left = self.most;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Lets everything else run, and the connections be looked at, once.
    pub(crate) async fn look(&mut self) {
        self.left = self.left.saturating_sub(1);
        tokio::task::yield_now().await;
    }
}
