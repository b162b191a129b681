//! A sequence moves from one engine to another whose pages and pieces are cut otherwise.

use super::*;
use crate::SlotState;

/// Latents f32 `[layers, tokens, 2]` and keys f32 `[layers, pools, 1]` of the whole prompt.
struct Whole {
    layers: usize,
    latents: Vec<f32>,
    keys: Vec<f32>,
}

impl Whole {
    fn of(ready: &Prefilled, layers: usize) -> Self {
        let mut whole = Self { layers, latents: Vec::new(), keys: Vec::new() };
        for layer in 0..layers {
            for piece in &ready.chunks {
                let own = |values: &[f32]| {
                    let size = values.len() / layers;
                    values[layer * size..(layer + 1) * size].to_vec()
                };
                whole.latents.extend(own(&piece.latents));
                whole.keys.extend(own(&piece.keys));
            }
        }
        whole
    }

    /// The positions from `first` up to `end`.
    fn piece(&self, first: u32, end: u32) -> Piece {
        let cut = |values: &[f32], from: u32, to: u32, width: usize| {
            let layers = values.chunks_exact(values.len() / self.layers);
            layers.flat_map(|own| own[from as usize * width..to as usize * width].to_vec()).collect()
        };
        let latents = cut(&self.latents, first, end, 2);
        Piece { first, tokens: end - first, latents, keys: cut(&self.keys, first / 4, end / 4, 1) }
    }
}

async fn between(drafts: u32, length: usize) {
    let sender = Rig::new(ShapeLadder { drafts, ..ladder() }, Limits::default());
    let receiver = Rig::new(
        ShapeLadder { chunks: vec![8, 32], page_tokens: 5, pages: 40, slots: 3, drafts, ..ladder() },
        Limits::default(),
    );
    receiver.script.accept(&[3, 0, 1, 2]);
    let (prompt, sampling) = (prompt(6, length), sampling(6, 20));
    let ready = run_prefill(&sender.handle(), prefill(&prompt, &sampling)).await.unwrap();
    sender.settle().await;

    let handle = receiver.handle();
    let whole = Whole::of(&ready, handle.facts().state.latent_layers);
    let _others = handle.reserve(10).unwrap();
    let tokens = length as u32;
    let mut reservation = handle.reserve(tokens + 20).unwrap();
    let job = decode(length, ready.first, &sampling);
    for (first, end) in [(40, tokens), (0, 7), (7, 33)] {
        import(&reservation, &whole.piece(first, end)).await.unwrap();
    }
    let refused = reservation.start(job.clone()).unwrap_err();
    assert_eq!(refused.error.to_string(), "state: the latent of position 33 is not imported");
    reservation = refused.reservation;
    import(&reservation, &whole.piece(30, 42)).await.unwrap();
    let refuse = |refused: Box<crate::NotStarted>| {
        let missing = format!("state: the state after {tokens} tokens is not imported");
        assert_eq!(refused.error.to_string(), missing);
        refused.reservation
    };
    reservation = refuse(reservation.start(job.clone()).unwrap_err());
    // Another count of tokens is another state.
    reservation.import_state(tokens - 1, ready.state.clone()).await.unwrap();
    reservation = refuse(reservation.start(job.clone()).unwrap_err());
    reservation.import_state(tokens, ready.state.clone()).await.unwrap();
    let (got, ended) = answer(reservation.start(job.clone()).unwrap(), &job).await;
    assert!(matches!(ended, DecodeEvent::Ended { reason: EndReason::Length, .. }), "{ended:?}");
    assert_eq!(got, continuation(&prompt, &sampling, 20), "{length} tokens, {drafts} drafts");
}

#[tokio::test]
async fn pieces_of_any_length_in_any_order() {
    for length in 52..56 {
        for drafts in [0, 1, 3, 5] {
            between(drafts, length).await;
        }
    }
}

/// What each part of the state is for shows when it is another sequence's.
#[tokio::test]
async fn every_part_of_the_state_matters() {
    let rig = Rig::new(ShapeLadder { drafts: 3, ..ladder() }, Limits::default());
    let handle = rig.handle();
    let sampling = sampling(6, 20);
    let prompt = prompt(6, 47);
    let ready = run_prefill(&handle, prefill(&prompt, &sampling)).await.unwrap();
    let want = continuation(&prompt, &sampling, 20);
    for part in 0..6 {
        let mut state = ready.state.clone();
        let mut chunks = ready.chunks.clone();
        let broken = |values: &[f32]| values.iter().map(|value| value + 1.0).collect::<Vec<f32>>();
        match part {
            0 => {}
            1 => state.recurrent = broken(&state.recurrent),
            2 => state.tails = broken(&state.tails),
            3 => state.index_tail = broken(&state.index_tail),
            4 => state.hidden = broken(&state.hidden),
            _ => chunks[0].keys = broken(&chunks[0].keys).into(),
        }
        let reservation = handle.reserve(80).unwrap();
        for piece in &chunks {
            import(&reservation, piece).await.unwrap();
        }
        reservation.import_state(47, state).await.unwrap();
        let mut stream = reservation.start(decode(47, ready.first, &sampling)).unwrap();
        let mut got = vec![ready.first];
        while let Some(Ok(DecodeEvent::Tokens { tokens, .. })) = stream.next().await {
            got.extend(tokens.into_iter().map(|token| token.id));
        }
        assert_eq!(got == want, part == 0, "part {part}");
    }
    rig.settle().await;
}

#[tokio::test]
async fn a_piece_that_does_not_fit_is_refused() {
    let rig = Rig::new(ShapeLadder { drafts: 2, ..ladder() }, Limits::default());
    let handle = rig.handle();
    let reservation = handle.reserve(20).unwrap();
    let beyond = reservation.import_latents(15, 6, vec![0.0; 24], vec![0.0; 4]).await;
    assert!(matches!(beyond, Err(Error::BeyondReservation { end: 21, capacity: 20, .. })), "{beyond:?}");
    let beyond = reservation.import_latents(u32::MAX, 6, vec![0.0; 24], vec![]).await;
    assert!(matches!(beyond, Err(Error::BeyondReservation { .. })), "{beyond:?}");
    let misshapen = reservation.import_latents(0, 6, vec![0.0; 25], vec![0.0; 2]).await;
    assert!(matches!(misshapen, Err(Error::Misshapen { expected: 24, got: 25, .. })), "{misshapen:?}");
    // Positions 6 to 11 complete the pools 1 and 2.
    let misshapen = reservation.import_latents(6, 6, vec![0.0; 24], vec![0.0; 2]).await;
    assert!(
        matches!(misshapen, Err(Error::Misshapen { field: "keys", expected: 4, got: 2 })),
        "{misshapen:?}"
    );
    let whole = SlotState {
        recurrent: vec![0.0; 4],
        tails: vec![0.0; 3],
        index_tail: vec![0.0; 16],
        hidden: vec![0.0; 1],
    };
    let misshape = |field: &'static str, state: SlotState| {
        let refused = reservation.import_state(6, state);
        async move {
            let refused = refused.await;
            assert!(matches!(refused, Err(Error::Misshapen { field: named, .. }) if named == field));
        }
    };
    misshape("recurrent", SlotState { recurrent: vec![], ..whole.clone() }).await;
    misshape("tails", SlotState { tails: vec![], ..whole.clone() }).await;
    misshape("index_tail", SlotState { index_tail: vec![], ..whole.clone() }).await;
    misshape("hidden", SlotState { hidden: vec![], ..whole.clone() }).await;
    reservation.import_state(6, whole).await.unwrap();
    let refused = reservation.start(decode(21, 1, &sampling(1, 1))).unwrap_err();
    assert!(matches!(refused.error, Error::BeyondReservation { field: "prompt_len", .. }));
    let refused = refused.reservation.start(decode(0, 97, &sampling(1, 1))).unwrap_err();
    assert!(matches!(refused.error, Error::UnknownToken { field: "first_token", id: 97, .. }));
    drop(refused);
    rig.settle().await;
}

#[tokio::test]
async fn a_command_under_way_keeps_its_pages() {
    let rig = Rig::new(ladder(), Limits::default());
    let handle = rig.handle();
    // The thread is busy with a long step when the import is asked for and its reservation goes.
    rig.script.slow(Duration::from_millis(60));
    let busy = handle.prefill(prefill(&prompt(1, 4), &sampling(1, 1))).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let reservation = handle.reserve(8).unwrap();
    let import = reservation.import_latents(0, 8, vec![0.0; 16], vec![0.0; 2]);
    let import = tokio::time::timeout(Duration::from_millis(1), import);
    assert!(import.await.is_err(), "the import ran during a step");
    drop(reservation);
    assert_eq!(handle.load().free_slots, 10, "pages free while an import to them is queued");
    rig.script.slow(Duration::ZERO);
    drop(busy);
    rig.settle().await;
}
