//! What goes wrong ends with a typed error, frees everything, and the next request works.

use super::*;

async fn works(rig: &Rig) {
    let (prompt, sampling) = (prompt(77, 33), sampling(77, 12));
    let (tokens, _) = collect(&rig.handle(), generate(&prompt, &sampling)).await.unwrap();
    assert_eq!(tokens, continuation(&prompt, &sampling, 12));
}

#[tokio::test]
async fn a_failed_step_ends_its_sequences_alone() {
    let rig = Rig::new(ladder(), Limits::default());
    let handle = rig.handle();
    rig.script.fail_next_step(false);
    let failed = collect(&handle, generate(&prompt(1, 20), &sampling(1, 5))).await;
    assert!(matches!(failed, Err(Error::Device { .. })), "{failed:?}");
    rig.settle().await;
    works(&rig).await;

    // A decode step fails while another sequence is half imported: that one is not touched.
    let ready = run_prefill(&handle, prefill(&prompt(2, 30), &sampling(2, 9))).await.unwrap();
    let reservation = handle.reserve(64).unwrap();
    import(&reservation, &ready.chunks[0]).await.unwrap();
    rig.script.slow(Duration::from_millis(2));
    let mut stream = handle.generate(generate(&prompt(3, 8), &sampling(3, 100))).unwrap();
    assert!(matches!(stream.next().await, Some(Ok(GenerateEvent::Tokens { .. }))));
    assert!(matches!(stream.next().await, Some(Ok(GenerateEvent::Tokens { .. }))));
    rig.script.fail_next_step(false);
    let error = loop {
        if let Err(error) = stream.next().await.unwrap() {
            break error;
        }
    };
    assert!(matches!(error, Error::Device { .. }), "{error}");
    import(&reservation, &ready.chunks[1]).await.unwrap();
    reservation.import_state(30, ready.state).await.unwrap();
    let job = decode(30, ready.first, &sampling(2, 9));
    let (tokens, _) = answer(reservation.start(job.clone()).unwrap(), &job).await;
    assert_eq!(tokens, continuation(&prompt(2, 30), &sampling(2, 9), 9));
    rig.settle().await;
}

#[tokio::test]
async fn lost_arrays_end_everyone_and_a_half_import_is_not_forgotten() {
    let rig = Rig::new(ladder(), Limits::default());
    let handle = rig.handle();
    let ready = run_prefill(&handle, prefill(&prompt(2, 30), &sampling(2, 9))).await.unwrap();
    let reservation = handle.reserve(64).unwrap();
    for piece in &ready.chunks {
        import(&reservation, piece).await.unwrap();
    }
    reservation.import_state(30, ready.state.clone()).await.unwrap();

    rig.script.slow(Duration::from_millis(2));
    let mut running = handle.generate(generate(&prompt(3, 8), &sampling(3, 100))).unwrap();
    for _ in 0..2 {
        running.next().await.unwrap().unwrap();
    }
    rig.script.fail_next_step(true);
    let error = loop {
        if let Err(error) = running.next().await.unwrap() {
            break error;
        }
    };
    assert!(matches!(error, Error::Device { .. } | Error::StateLost), "{error}");

    // Imported before the loss: whoever starts it must not decode from nothing.
    let mut stream = reservation.start(decode(30, ready.first, &sampling(2, 9))).unwrap();
    assert!(matches!(stream.next().await, Some(Err(Error::StateLost))));
    // Half before, half after: what went is asked for again.
    let reservation = handle.reserve(64).unwrap();
    import(&reservation, &ready.chunks[0]).await.unwrap();
    rig.script.fail_next_step(true);
    assert!(collect(&handle, generate(&prompt(1, 20), &sampling(1, 5))).await.is_err());
    import(&reservation, &ready.chunks[1]).await.unwrap();
    reservation.import_state(30, ready.state).await.unwrap();
    let refused = reservation.start(decode(30, ready.first, &sampling(2, 9))).unwrap_err();
    assert!(matches!(refused.error, Error::Incomplete { .. }), "{}", refused.error);
    drop(refused);
    rig.settle().await;
    works(&rig).await;
}

#[tokio::test]
async fn logits_that_are_not_finite_make_no_token() {
    let rig = Rig::new(ladder(), Limits::default());
    let handle = rig.handle();
    rig.script.corrupt_next_draw();
    let failed = collect(&handle, generate(&prompt(1, 5), &sampling(1, 5))).await;
    assert!(matches!(failed, Err(Error::NotFinite { position: 5 })), "{failed:?}");
    rig.script.slow(Duration::from_millis(2));
    let mut stream = handle.generate(generate(&prompt(3, 8), &sampling(3, 100))).unwrap();
    stream.next().await.unwrap().unwrap();
    rig.script.corrupt_next_draw();
    let error = loop {
        if let Err(error) = stream.next().await.unwrap() {
            break error;
        }
    };
    assert!(matches!(error, Error::NotFinite { .. }), "{error}");
    rig.settle().await;
    works(&rig).await;
}

#[tokio::test]
async fn deadlines_and_departures_free_everything_by_the_next_step() {
    let rig = Rig::new(ladder(), Limits { unread_chunks: 1, ..Limits::default() });
    let handle = rig.handle();
    rig.script.slow(Duration::from_millis(5));
    let soon = |milliseconds| Some(std::time::Instant::now() + Duration::from_millis(milliseconds));
    let mut job = generate(&prompt(4, 8), &sampling(4, 120));
    job.deadline = soon(60);
    let late = collect(&handle, job).await;
    assert!(matches!(late, Err(Error::DeadlinePassed { phase: "decode" })), "{late:?}");
    let mut job = prefill(&prompt(4, 120), &sampling(4, 1));
    job.deadline = soon(12);
    let late = run_prefill(&handle, job).await;
    assert!(matches!(late, Err(Error::DeadlinePassed { phase: "prefill" })));
    // Held up by its reader while the thread sleeps: the deadline wakes it.
    let mut job = prefill(&prompt(4, 120), &sampling(4, 1));
    job.deadline = soon(30);
    let unread = handle.prefill(job).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(handle.load().free_slots, 11);
    rig.settle().await;
    drop(unread);
    // Held up by its reader, who leaves.
    let unread = handle.prefill(prefill(&prompt(4, 120), &sampling(4, 1))).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(handle.load().free_slots, 11);
    drop(unread);
    timeout(Duration::from_secs(1), rig.settle()).await.unwrap();
}

#[tokio::test]
async fn what_can_not_be_done_is_refused_by_name() {
    let rig = Rig::new(ShapeLadder { pages: 10, ..ladder() }, Limits::default());
    let handle = rig.handle();
    let refuse = |prompt: &[u32]| handle.prefill(prefill(prompt, &sampling(1, 1))).unwrap_err().to_string();
    assert_eq!(refuse(&[]), "prompt: is empty");
    assert_eq!(refuse(&[1; 129]), "prompt: 129 tokens, the context holds 128");
    assert_eq!(refuse(&[1, 97]), "prompt: token id 97 is not in the vocabulary of 97");
    assert!(matches!(handle.reserve(129), Err(Error::TooLong { tokens: 129, .. })));
    // Fits the context but never this pool: waiting would be for ever.
    assert!(matches!(handle.reserve_by(128, None).await, Err(Error::NoRoom(no_room)) if !no_room.may_pass()));
    let never = run_prefill(&handle, prefill(&[1; 128], &sampling(1, 1))).await;
    assert!(matches!(never, Err(Error::NoRoom(no_room)) if !no_room.may_pass()));
    works(&rig).await;
    rig.settle().await;

    let handle = rig.handle();
    let mut stream = handle.generate(generate(&prompt(1, 4), &sampling(1, 70))).unwrap();
    stream.next().await.unwrap().unwrap();
    rig.script.slow(Duration::from_millis(2));
    drop(rig);
    let stopped = loop {
        if let Err(error) = stream.next().await.unwrap() {
            break error;
        }
    };
    assert!(matches!(stopped, Error::Stopped), "{stopped}");
    assert!(matches!(handle.prefill(prefill(&[1], &sampling(1, 1))), Err(Error::Stopped)));
}
