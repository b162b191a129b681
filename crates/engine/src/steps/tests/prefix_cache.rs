//! A prompt that goes on from what an earlier one left is the same as one that began at its beginning: its token, its state
//! and every latent, bit for bit. The fake device folds everything that a sequence should hold into its tokens.

use prefix::HashUnit;

use super::*;

/// What a prefill gave, whatever chunks it came in. Floats by their bits: of the state not all is ever written.
#[derive(Debug, PartialEq)]
struct Whole {
    first: u32,
    state: [Vec<u32>; 4],
    /// By position and layer.
    latents: Vec<Vec<u32>>,
    /// By pool and layer.
    keys: Vec<Vec<u32>>,
}

fn bits<'a>(values: impl IntoIterator<Item = &'a f32>) -> Vec<u32> {
    values.into_iter().map(|value| value.to_bits()).collect()
}

fn whole(handle: &EngineHandle, done: &Prefilled) -> Whole {
    let facts = handle.facts();
    let (layers, width) = (facts.state.latent_layers, facts.state.latent_width);
    let (mut latents, mut keys) = (Vec::new(), Vec::new());
    for piece in &done.chunks {
        assert_eq!(piece.first as usize, latents.len(), "chunks leave no gap and do not overlap");
        let tokens = piece.tokens as usize;
        for row in 0..tokens {
            let of = |layer| &piece.latents[(layer * tokens + row) * width..][..width];
            latents.push(bits((0..layers).flat_map(of)));
        }
        let pools = facts.pools(piece.first, piece.tokens).len();
        let key = |pool| bits((0..layers).map(|layer| &piece.keys[layer * pools + pool]));
        keys.extend((0..pools).map(key));
    }
    let state = &done.state;
    let state = [&state.recurrent, &state.tails, &state.index_tail, &state.hidden].map(bits);
    Whole { first: done.first, state, latents, keys }
}

fn ladder_of(page_tokens: u32, drafts: u32, pages: u32) -> ShapeLadder {
    ShapeLadder { chunks: vec![16, 256], context: 2048, page_tokens, pages, slots: 5, drafts, ..ladder() }
}

/// Conversations that grow, are edited, begin alike by accident and end anywhere.
struct Traffic {
    state: u64,
    said: Vec<Vec<u32>>,
}

impl Traffic {
    fn random(&mut self, below: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn next(&mut self) -> Vec<u32> {
        let grow = |own: &mut Self, tokens: &mut Vec<u32>| {
            for _ in 0..1 + own.random(500) {
                tokens.push(own.random(VOCABULARY as u64) as u32);
            }
        };
        let mut tokens = match self.random(10) {
            0 | 1 => Vec::new(),
            _ if self.said.is_empty() => Vec::new(),
            // Edited: a part of what was said, and then something else.
            2..=4 => {
                let at = self.random(self.said.len() as u64) as usize;
                let most = self.said[at].len() as u64;
                let kept = 1 + self.random(most) as usize;
                self.said[at][..kept].to_vec()
            }
            // The same again.
            5 => return self.said[self.said.len() - 1].clone(),
            _ => {
                let at = self.random(self.said.len() as u64) as usize;
                self.said[at].clone()
            }
        };
        grow(self, &mut tokens);
        tokens.truncate(2000);
        self.said.push(tokens.clone());
        if self.said.len() > 12 {
            self.said.remove(0);
        }
        tokens
    }
}

/// Tokens that were cached.
async fn compare(unit: u32, page_tokens: u32, drafts: u32, prompts: usize) -> u64 {
    // Room for two prompts, so that pages are evicted, and for a dozen checkpoints, so that those are, too.
    let pages = 2 * 2000 / page_tokens + 8;
    let checkpoints = 12 * 80;
    let prefix = PrefixCache::new(HashUnit::new(unit).unwrap(), checkpoints);
    let warm = Rig::keeping(ladder_of(page_tokens, drafts, pages), Limits::default(), Some(prefix));
    let cold = Rig::new(ladder_of(page_tokens, drafts, pages), Limits::default());
    let mut traffic = Traffic { state: u64::from(unit * 31 + page_tokens * 7 + drafts), said: Vec::new() };
    let mut cached = 0;
    for turn in 0..prompts {
        let prompt = traffic.next();
        let sampling = sampling(turn as u64, 4);
        if traffic.random(6) == 0 {
            // Whoever asked leaves in the middle; what was computed so far may be found, and what was not must not be.
            let mut left = warm.handle().prefill(prefill(&prompt, &sampling)).unwrap();
            for _ in 0..1 + traffic.random(3) {
                left.next().await;
            }
        }
        let got = run_prefill(&warm.handle(), prefill(&prompt, &sampling)).await.unwrap();
        let wanted = run_prefill(&cold.handle(), prefill(&prompt, &sampling)).await.unwrap();
        assert!(wanted.cached == 0 && (got.cached as usize) < prompt.len());
        assert_eq!(whole(&warm.handle(), &got), whole(&cold.handle(), &wanted), "{turn}: {}", prompt.len());
        assert_eq!(got.first, continuation(&prompt, &sampling, 1)[0]);
        cached += u64::from(got.cached);
    }
    warm.settle().await;
    cached
}

#[tokio::test]
async fn warm_is_cold() {
    let mut cached = Vec::new();
    for unit in [64, 128, 512] {
        for page_tokens in [16, 48, 64] {
            for drafts in [0, 3] {
                cached.push((unit, page_tokens, drafts, compare(unit, page_tokens, drafts, 60).await));
            }
        }
    }
    assert!(cached.iter().all(|(.., tokens)| *tokens > 2000), "{cached:?}");
}

#[tokio::test]
async fn whole_answers_are_the_same_and_tenants_share_nothing() {
    for drafts in [0, 3] {
        let prefix = PrefixCache::new(HashUnit::new(64).unwrap(), 1 << 20);
        let rig = Rig::keeping(ladder_of(48, drafts, 400), Limits::default(), Some(prefix));
        let handle = rig.handle();
        let first = prompt(3, 700);
        let longer = [first.clone(), prompt(4, 200)].concat();
        for (prompt, seed) in [(&first, 1), (&longer, 2), (&longer, 3)] {
            let sampling = sampling(seed, 40);
            let (tokens, _) = collect(&handle, generate(prompt, &sampling)).await.unwrap();
            assert_eq!(tokens, continuation(prompt, &sampling, 40));
        }
        let again = run_prefill(&handle, prefill(&longer, &sampling(1, 1))).await.unwrap();
        assert_eq!(again.cached, 896);
        let other = Namespace::of(b"another tenant", b"fake");
        let job = PrefillJob { namespace: other, ..prefill(&longer, &sampling(1, 1)) };
        assert_eq!(run_prefill(&handle, job).await.unwrap().cached, 0);
        rig.settle().await;
    }
}

#[tokio::test]
async fn state_that_the_device_lost_is_not_found_again() {
    let prefix = PrefixCache::new(HashUnit::new(64).unwrap(), 1 << 20);
    let rig = Rig::keeping(ladder_of(16, 0, 400), Limits::default(), Some(prefix));
    let handle = rig.handle();
    let asked = prompt(5, 300);
    let job = || prefill(&asked, &sampling(1, 1));
    run_prefill(&handle, job()).await.unwrap();
    assert_eq!(run_prefill(&handle, job()).await.unwrap().cached, 256);
    rig.script.fail_next_step(true);
    run_prefill(&handle, job()).await.err().unwrap();
    let again = run_prefill(&handle, job()).await.unwrap();
    assert_eq!((again.cached, again.first), (0, continuation(&asked, &sampling(1, 1), 1)[0]));
    rig.settle().await;
}

#[tokio::test]
async fn who_gives_way_goes_on_where_it_was() {
    let prefix = PrefixCache::new(HashUnit::new(64).unwrap(), 1 << 20);
    // One long prompt fits, and not a short one beside it.
    let rig = Rig::keeping(ladder_of(16, 3, 126), Limits::default(), Some(prefix));
    rig.script.slow(Duration::from_millis(5));
    let handle = rig.handle();
    let (long, urgent) = (prompt(6, 1990), prompt(7, 200));
    let mut waits = handle.prefill(prefill(&long, &sampling(1, 1))).unwrap();
    assert!(matches!(waits.next().await, Some(Ok(PrefillEvent::Started))));
    let job = PrefillJob { priority: 5, ..prefill(&urgent, &sampling(2, 1)) };
    let mut first = handle.prefill(job).unwrap();
    let (mut done, mut before) = (Vec::new(), None);
    let mut chunks = Vec::new();
    loop {
        tokio::select! {
            event = waits.next() => match event.unwrap().unwrap() {
                PrefillEvent::Chunk { first_position, tokens, .. } => chunks.push((first_position, tokens)),
                PrefillEvent::Done { first, cached, .. } => { done.push((first.id, cached)); break }
                PrefillEvent::Started => panic!("it has begun already"),
            },
            Some(event) = first.next() => if let PrefillEvent::Done { first, .. } = event.unwrap() {
                assert!(done.is_empty());
                before = Some((first.id, chunks.len()));
            },
        }
    }
    let (id, at) = before.expect("the urgent one is done first");
    assert_eq!(id, continuation(&urgent, &sampling(2, 1), 1)[0]);
    let (id, cached) = done[0];
    assert_eq!(id, continuation(&long, &sampling(1, 1), 1)[0]);
    let given_up_at = chunks[..at].last().map_or(0, |(first, tokens)| first + tokens);
    assert!(cached > 0 && cached >= given_up_at, "{cached} of {given_up_at} computed were kept");
    let mut next = 0;
    for (first, tokens) in chunks {
        assert_eq!(first, next, "nothing is told twice or left out");
        next += tokens;
    }
    rig.settle().await;
}
