//! Requests come and go; each gets the tokens it would get alone.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

#[tokio::test]
async fn tokens_do_not_depend_on_batch_mates_and_everything_is_given_back() {
    let rig = Rig::new(ladder(), Limits::default());
    // Slower than requests come, on any machine: they pile up into every batch size.
    rig.script.slow(Duration::from_micros(300));
    let mut rng = StdRng::seed_from_u64(11);
    let mut tasks = tokio::task::JoinSet::new();
    for request in 0..120u64 {
        let handle = rig.handle();
        let prompt = prompt(request, rng.random_range(1..100));
        let sampling = sampling(request, rng.random_range(1..28));
        let leave_after = rng.random_bool(0.3).then(|| rng.random_range(0..12));
        let delay = Duration::from_micros(rng.random_range(0..20_000));
        tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            let want = (sampling.max_tokens.unwrap() as usize).min(128 - prompt.len());
            let want = continuation(&prompt, &sampling, want);
            let job = generate(&prompt, &sampling);
            match leave_after {
                None => assert_eq!(collect(&handle, job).await.unwrap(), (want, EndReason::Length)),
                Some(events) => {
                    let mut stream = handle.generate(job).unwrap();
                    for _ in 0..events {
                        let _event = stream.next().await;
                    }
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    rig.settle().await;
    let steps = rig.script.steps();
    let batches: Vec<u32> = steps.iter().filter(|step| step.0 == "decode").map(|step| step.1).collect();
    assert!(batches.contains(&2) && batches.contains(&8), "no mixture of batch sizes: {batches:?}");
}

#[tokio::test]
async fn an_answer_ends_where_it_should() {
    let rig = Rig::new(ladder(), Limits::default());
    let handle = rig.handle();
    let prompt = prompt(3, 21);
    let tokens = continuation(&prompt, &sampling(5, 8), 8);
    let end = tokens[4];
    let at = tokens.iter().position(|token| *token == end).unwrap();

    let mut job = generate(&prompt, &sampling(5, 8));
    job.end_tokens = vec![end];
    let ended = (tokens[..=at].to_vec(), EndReason::EndToken(end));
    assert_eq!(collect(&handle, job.clone()).await.unwrap(), ended);
    job.sampling.ignore_eos = true;
    assert_eq!(collect(&handle, job.clone()).await.unwrap(), (tokens.clone(), EndReason::Length));
    job.sampling.stop_token_ids = vec![end];
    assert_eq!(collect(&handle, job).await.unwrap(), ended);
    // The first token, which the prefill draws, counts like the others.
    let one = collect(&handle, generate(&prompt, &sampling(5, 1))).await.unwrap();
    assert_eq!(one, (tokens[..1].to_vec(), EndReason::Length));
    let mut job = generate(&prompt, &sampling(5, 8));
    job.end_tokens = vec![tokens[0]];
    let first = collect(&handle, job).await.unwrap();
    assert_eq!(first, (tokens[..1].to_vec(), EndReason::EndToken(tokens[0])));
    // Without a limit the context is one.
    let mut job = generate(&prompt, &sampling(5, 8));
    job.sampling.max_tokens = None;
    assert_eq!(collect(&handle, job).await.unwrap().0.len(), 128 - 21);
    rig.settle().await;
}

#[tokio::test]
async fn a_reader_that_stands_still_holds_up_nobody() {
    let limits = Limits { unread_chunks: 2, unread_tokens: 30, ..Limits::default() };
    let rig = Rig::new(ladder(), limits);
    let handle = rig.handle();
    // 100 tokens are 7 chunks; 2 of them are computed and then the prompt waits.
    let mut unread = handle.prefill(prefill(&prompt(1, 100), &sampling(1, 1))).unwrap();
    let ready = run_prefill(&handle, prefill(&prompt(2, 40), &sampling(2, 100))).await.unwrap();
    let reservation = handle.reserve(128).unwrap();
    for piece in &ready.chunks {
        import(&reservation, piece).await.unwrap();
    }
    reservation.import_state(40, ready.state).await.unwrap();
    // Slow enough for a reader that does read, also on a busy machine.
    rig.script.slow(Duration::from_millis(2));
    let mut late = reservation.start(decode(40, ready.first, &sampling(2, 88))).unwrap();

    let (tokens, _) = collect(&handle, generate(&prompt(9, 50), &sampling(9, 60))).await.unwrap();
    assert_eq!(tokens, continuation(&prompt(9, 50), &sampling(9, 60), 60));

    // The answer was ended, what was queued is still there, and its room is free.
    let DecodeEvent::Tokens { tokens, .. } = late.next().await.unwrap().unwrap() else { panic!() };
    assert_eq!(tokens.len(), 30);
    assert!(matches!(late.next().await, Some(Err(Error::SlowReader { events: 30 }))));
    assert!(late.next().await.is_none());
    assert_eq!(handle.load().free_slots, 11);
    // The prompt goes on as soon as it is read.
    let mut last = None;
    while let Some(event) = unread.next().await {
        last = Some(event.unwrap());
    }
    assert!(matches!(last, Some(PrefillEvent::Done { .. })));
    rig.settle().await;
}

#[tokio::test]
async fn room_is_waited_for_in_order() {
    let rig = Rig::new(ladder(), Limits::default());
    let handle = rig.handle();
    let held: Vec<_> = (0..4).map(|_| handle.reserve(120).unwrap()).collect();
    let Err(Error::NoRoom(no_room)) = handle.reserve(40) else { panic!("60 of 64 pages are held") };
    assert_eq!((no_room.need_pages, no_room.free_pages, no_room.free_slots), (5, 4, 8));

    let waiter = |tokens| {
        let handle = handle.clone();
        tokio::spawn(async move { handle.reserve_by(tokens, None).await.map(|got| got.tokens()) })
    };
    let large = waiter(128);
    tokio::time::sleep(Duration::from_millis(20)).await;
    // There would be room for this one, but another is first.
    let small = waiter(8);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!large.is_finished() && !small.is_finished());
    assert!(matches!(handle.reserve(8), Err(Error::NoRoom(_))));
    drop(held);
    assert_eq!(large.await.unwrap().unwrap(), 128);
    assert_eq!(small.await.unwrap().unwrap(), 8);

    let held: Vec<_> = (0..12).map(|_| handle.reserve(8).unwrap()).collect();
    let soon = std::time::Instant::now() + Duration::from_millis(20);
    let late = handle.reserve_by(8, Some(soon)).await;
    assert!(matches!(late, Err(Error::DeadlinePassed { phase: "reserve" })));
    drop(held);
    rig.settle().await;
}

#[tokio::test]
async fn more_sequences_than_the_largest_batch_take_turns() {
    let rig = Rig::new(ShapeLadder { batches: vec![2], ..ladder() }, Limits::default());
    let handle = rig.handle();
    let jobs = (0..7u64).map(|seed| {
        let handle = handle.clone();
        async move { collect(&handle, generate(&prompt(seed, 9), &sampling(seed, 20))).await.unwrap().0 }
    });
    let mut tasks: tokio::task::JoinSet<_> = jobs.collect();
    let mut seen = Vec::new();
    while let Some(tokens) = tasks.join_next().await {
        seen.push(tokens.unwrap());
    }
    for seed in 0..7u64 {
        let want = continuation(&prompt(seed, 9), &sampling(seed, 20), 20);
        assert!(seen.contains(&want));
    }
    rig.settle().await;
}
