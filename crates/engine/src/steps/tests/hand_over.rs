//! A sequence moves from one engine to another whose pages and pieces are cut otherwise.

use super::*;

/// Latents f32 `[1, tokens, 2]` of the whole prompt.
fn joined(ready: &Prefilled) -> Vec<f32> {
    ready.chunks.iter().flat_map(|(_, _, latents)| latents.iter().copied()).collect()
}

#[tokio::test]
async fn pieces_of_any_length_in_any_order() {
    let sender = Rig::new(ladder(), Limits::default());
    let receiver = Rig::new(
        ShapeLadder { chunks: vec![8, 32], page_tokens: 5, pages: 40, slots: 3, ..ladder() },
        Limits::default(),
    );
    let (prompt, sampling) = (prompt(6, 53), sampling(6, 20));
    let ready = run_prefill(&sender.handle(), prefill(&prompt, &sampling)).await.unwrap();
    let starts: Vec<(u32, u32)> = ready.chunks.iter().map(|(first, tokens, _)| (*first, *tokens)).collect();
    assert_eq!(starts, [(0, 16), (16, 16), (32, 16), (48, 5)]);
    sender.settle().await;

    let latents = joined(&ready);
    let handle = receiver.handle();
    let _others = handle.reserve(10).unwrap();
    let mut reservation = handle.reserve(73).unwrap();
    let job = || decode(53, ready.first, &sampling);
    for (first, end) in [(40, 53), (0, 7), (7, 33)] {
        let piece = &latents[first as usize * 2..end as usize * 2];
        reservation.import_latents(first, end - first, piece).await.unwrap();
    }
    let refused = reservation.start(job()).unwrap_err();
    assert_eq!(refused.error.to_string(), "state: the latent of position 33 is not imported");
    reservation = refused.reservation;
    reservation.import_latents(30, 12, &latents[60..84]).await.unwrap();
    let refused = reservation.start(job()).unwrap_err();
    assert_eq!(refused.error.to_string(), "state: the recurrent state is not imported");
    reservation = refused.reservation;
    reservation.import_state(ready.state.clone()).await.unwrap();
    let mut stream = reservation.start(job()).unwrap();
    let mut got = vec![ready.first];
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            DecodeEvent::Tokens { position, tokens } => {
                assert_eq!(position as usize, 53 + got.len());
                got.extend(tokens.into_iter().map(|token| token.id));
            }
            DecodeEvent::Ended { reason } => assert_eq!(reason, EndReason::Length),
        }
    }
    assert_eq!(got, expected(&prompt, &SampleRow::pack(&sampling), VOCABULARY, 20));
}

#[tokio::test]
async fn a_piece_that_does_not_fit_is_refused() {
    let rig = Rig::new(ladder(), Limits::default());
    let handle = rig.handle();
    let reservation = handle.reserve(20).unwrap();
    let beyond = reservation.import_latents(15, 6, vec![0.0; 12]).await;
    assert!(matches!(beyond, Err(Error::BeyondReservation { end: 21, capacity: 20, .. })), "{beyond:?}");
    let beyond = reservation.import_latents(u32::MAX, 6, vec![0.0; 12]).await;
    assert!(matches!(beyond, Err(Error::BeyondReservation { .. })), "{beyond:?}");
    let misshapen = reservation.import_latents(0, 6, vec![0.0; 13]).await;
    assert!(matches!(misshapen, Err(Error::Misshapen { expected: 12, got: 13, .. })), "{misshapen:?}");
    let misshapen = reservation.import_state(crate::SlotState::default()).await;
    assert!(matches!(misshapen, Err(Error::Misshapen { field: "recurrent", .. })), "{misshapen:?}");
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
    let import =
        tokio::time::timeout(Duration::from_millis(1), reservation.import_latents(0, 8, vec![0.0; 16]));
    assert!(import.await.is_err(), "the import ran during a step");
    drop(reservation);
    assert_eq!(handle.load().free_slots, 10, "pages free while an import to them is queued");
    rig.script.slow(Duration::ZERO);
    drop(busy);
    rig.settle().await;
}
