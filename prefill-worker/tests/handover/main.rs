//! Both workers, as they are served, over a device that draws tokens from everything a sequence should have in its room:
//! a part lost, moved or taken from another sequence changes the text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod rig;

use std::time::Duration;

use engine::fake::expected;
use kvxfer::EndKey;
use programs::sampling::SampleRow;
use proto::status::Fault;
use proto::v1::prefill_response::Event as Prefilled;
use proto::v1::run_response::Event as Decoded;
use proto::v1::{EndReason, ErrorReason};

use rig::{Rig, VOCABULARY, asked, prompt, sampling};

#[tokio::test]
async fn tokens_after_the_hand_over_are_those_of_one_process() {
    let rig = Rig::start().await;
    for pattern in [&[0][..], &[3], &[2, 0, 3, 1]] {
        let single = rig::single_process(pattern);
        rig.decode_device.accept(pattern);
        // all places of an open pool, and none of it; prompts of a chunk and of several
        for length in [1, 3, 4, 5, 7, 8, 9, 40] {
            let prompt = prompt(length);
            let (prefilled, decoded) = rig.generate(&prompt, 20).await;
            let decoded = decoded.unwrap();
            let counts = rig::counts(&decoded);
            let tokens = rig::tokens(prefilled.unwrap(), decoded);
            let row = SampleRow::pack(&asked(20));
            assert_eq!(tokens, expected(&prompt, &row, VOCABULARY, 20), "prompt of {length}, {pattern:?}");
            assert_eq!((tokens, counts), rig::generate(&single, &prompt, 20).await);
        }
    }
    rig.all_given_back().await;
}

#[tokio::test]
async fn an_output_that_is_cut_goes_on_as_if_it_were_not() {
    let rig = Rig::start().await;
    let prompt = prompt(13);
    let whole = expected(&prompt, &SampleRow::pack(&asked(12)), VOCABULARY, 12);
    for drawn in [1, 2, 5, 11] {
        let (output, left) = whole.split_at(drawn);
        let all = [&prompt[..], output].concat();
        let ticket = rig.reserve(all.len() as u32, left.len() as u32).await.unwrap();
        let (prefilled, decoded) = rig.resume(&all, drawn as u32, left.len() as u32, &ticket).await;
        assert_eq!(rig::tokens(prefilled.unwrap(), decoded.unwrap()), left, "{drawn} drawn");
    }
    let ticket = rig.reserve(13, 8).await.unwrap();
    let refused = rig.resume(&prompt, 13, 8, &ticket).await.0.unwrap_err();
    assert_eq!(
        (refused.reason, refused.field.as_deref()),
        (ErrorReason::InvalidField, Some("output_tokens"))
    );
    rig.release(&ticket).await;
    rig.all_given_back().await;
}

#[tokio::test]
async fn eight_at_once_do_not_mix() {
    let rig = Rig::start().await;
    let runs = (1..=8).map(|number| {
        let rig = &rig;
        async move {
            let prompt = prompt(5 * number);
            let (prefilled, decoded) = rig.generate(&prompt, 9).await;
            let expected = expected(&prompt, &SampleRow::pack(&asked(9)), VOCABULARY, 9);
            assert_eq!(rig::tokens(prefilled.unwrap(), decoded.unwrap()), expected);
        }
    });
    futures::future::join_all(runs).await;
    rig.all_given_back().await;
}

#[tokio::test]
async fn the_events_come_in_order_and_end() {
    let rig = Rig::start().await;
    let (prefilled, decoded) = rig.generate(&prompt(20), 3).await;
    let (prefilled, decoded) = (prefilled.unwrap(), decoded.unwrap());
    assert!(matches!(prefilled[0], Prefilled::Progress(progress) if progress.total_tokens == 20));
    let [.., Prefilled::FirstToken(_), Prefilled::HandedOver(handed)] = &prefilled[..] else {
        panic!("{prefilled:?}")
    };
    let [Decoded::Committed(committed), .., Decoded::Ended(ended)] = &decoded[..] else {
        panic!("{decoded:?}")
    };
    assert_eq!(committed.bytes, handed.bytes);
    assert_eq!(ended.reason(), EndReason::Length);
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_caller_that_leaves_frees_both_workers_within_a_second() {
    let rig = Rig::start().await;
    rig.slow(Duration::from_millis(30));
    // before the transfer, during it, and while tokens are drawn
    for events in [0, 1, 2, 3] {
        let ticket = rig.reserve(40, 80).await.unwrap();
        let (mut prefill, mut decode) = rig.begin(&prompt(40), 80, &ticket).await;
        for _ in 0..events {
            prefill.message().await.unwrap().unwrap();
        }
        if events == 3 {
            // the commit, and a token
            decode.message().await.unwrap().unwrap();
            decode.message().await.unwrap().unwrap();
        }
        drop((prefill, decode));
        tokio::time::timeout(Duration::from_secs(1), rig.idle()).await.expect("freed within a second");
    }
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_decode_stream_that_is_dropped_ends_the_prefill_with_a_reason() {
    let rig = Rig::start().await;
    rig.slow(Duration::from_millis(30));
    let ticket = rig.reserve(40, 8).await.unwrap();
    let (mut prefill, decode) = rig.begin(&prompt(40), 8, &ticket).await;
    prefill.message().await.unwrap().unwrap();
    drop(decode);
    let ended = loop {
        match prefill.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a silent end"),
            Err(status) => break Fault::from_status(&status),
        }
    };
    assert!(matches!(ended.reason, ErrorReason::Cancelled | ErrorReason::TransferFailed), "{ended:?}");
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_device_that_fails_is_told_on_both_streams() {
    let rig = Rig::start().await;
    rig.prefill_device.fail_next_step(false);
    let (prefilled, decoded) = rig.generate(&prompt(20), 3).await;
    assert_eq!(prefilled.unwrap_err().reason, ErrorReason::WorkerLost);
    assert_eq!(decoded.unwrap_err().reason, ErrorReason::TransferFailed);
    rig.all_given_back().await;
}

#[tokio::test]
async fn wrong_messages_are_refused_by_field() {
    let rig = Rig::start().await;
    let reason = |fault: Fault| (fault.reason, fault.field.unwrap_or_default());

    let refused = rig.reserve_with(10, 5, |message| message.incarnation = vec![0; 16].into()).await;
    assert_eq!(reason(refused.unwrap_err()), (ErrorReason::StaleIncarnation, "incarnation".to_owned()));
    let other = |message: &mut proto::v1::ReserveRequest| {
        message.fingerprint.as_mut().unwrap().weights_digest = vec![1].into();
    };
    let refused = rig.reserve_with(10, 5, other).await;
    let field = "fingerprint.weights_digest".to_owned();
    assert_eq!(reason(refused.unwrap_err()), (ErrorReason::Mismatch, field));
    let other = |message: &mut proto::v1::ReserveRequest| {
        message.fingerprint.as_mut().unwrap().drafts = true;
    };
    let refused = rig.reserve_with(10, 5, other).await;
    assert_eq!(reason(refused.unwrap_err()), (ErrorReason::Mismatch, "fingerprint.drafts".to_owned()));
    let refused = rig.reserve(60, 100).await;
    assert_eq!(reason(refused.unwrap_err()).0, ErrorReason::ContextLength);

    let mut ticket = rig.reserve(10, 5).await.unwrap();
    ticket.layout.as_mut().unwrap().heads += 1;
    let (prefilled, _) = rig.run(&prompt(10), 5, &ticket).await;
    assert_eq!(reason(prefilled.unwrap_err()), (ErrorReason::Mismatch, "layout.heads".to_owned()));
    ticket.layout.as_mut().unwrap().heads -= 1;
    ticket.layout.as_mut().unwrap().index_pool += 1;
    let (prefilled, _) = rig.run(&prompt(10), 5, &ticket).await;
    assert_eq!(reason(prefilled.unwrap_err()), (ErrorReason::Mismatch, "layout.index_pool".to_owned()));
    ticket.layout.as_mut().unwrap().index_pool -= 1;
    // the decode stream above took the ticket with it
    let (prefilled, decoded) = rig.run(&prompt(10), 5, &ticket).await;
    assert_eq!(reason(decoded.unwrap_err()).0, ErrorReason::UnknownTicket);
    assert_eq!(reason(prefilled.unwrap_err()).0, ErrorReason::TransferFailed);

    let ticket = rig.reserve(10, 5).await.unwrap();
    let (prefilled, _) = rig.run(&prompt(11), 5, &ticket).await;
    assert_eq!(reason(prefilled.unwrap_err()), (ErrorReason::InvalidField, "ticket.state_pos".to_owned()));
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_ticket_is_of_use_to_the_worker_it_is_bound_to_and_to_no_other() {
    let rig = Rig::start().await;
    let other = EndKey::new([7; 32]).public();
    let stolen = rig.reserve_with(10, 5, |message| message.sender_key = other.bytes().to_vec().into()).await;
    let (prefilled, _) = rig.run(&prompt(10), 5, &stolen.unwrap()).await;
    let fault = prefilled.unwrap_err();
    assert_eq!(fault.reason, ErrorReason::TransferFailed);
    assert!(fault.message.contains("unknown ticket"), "{fault:?}");
    for (key, why) in [(vec![], "0 bytes instead of 32"), (vec![0; 32], "is no public key of one end")] {
        let refused = rig.reserve_with(10, 5, |message| message.sender_key = key.into()).await.unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("sender_key"));
        assert!(refused.message.contains(why), "{refused:?}");
    }
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_full_worker_lets_reservations_wait_and_release_is_idempotent() {
    let rig = Rig::start().await;
    let mut tickets = Vec::new();
    for _ in 0..rig::SLOTS {
        tickets.push(rig.reserve(4, 4).await.unwrap());
    }
    let waiting = rig.reserve(4, 4);
    let freeing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let first = tickets.remove(0);
        rig.release(&first).await;
        rig.release(&first).await;
    };
    let (waited, ()) = tokio::join!(waiting, freeing);
    tickets.push(waited.unwrap());
    for ticket in &tickets {
        rig.release(ticket).await;
    }
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_reservation_that_nobody_uses_runs_out() {
    let rig = Rig::with_lease(150).await;
    let ticket = rig.reserve(10, 5).await.unwrap();
    tokio::time::timeout(Duration::from_secs(2), rig.idle()).await.expect("its lease ended");
    let (_, decoded) = rig.run(&prompt(10), 5, &ticket).await;
    assert_eq!(decoded.unwrap_err().reason, ErrorReason::LeaseExpired);
    rig.all_given_back().await;
}

#[tokio::test]
async fn a_drained_worker_finishes_what_runs() {
    let rig = Rig::start().await;
    rig.slow(Duration::from_millis(20));
    let ticket = rig.reserve(40, 10).await.unwrap();
    let (prefill, decode) = rig.begin(&prompt(40), 10, &ticket).await;
    rig.drain();
    assert_eq!(rig.reserve(10, 5).await.unwrap_err().reason, ErrorReason::Draining);
    let (prefilled, decoded) = rig::collect(prefill, decode).await;
    assert_eq!(rig::tokens(prefilled.unwrap(), decoded.unwrap()).len(), 10);
    rig.ended().await;
}

#[tokio::test]
async fn logprobs_come_when_asked_for() {
    let rig = Rig::start().await;
    let ticket = rig.reserve(10, 5).await.unwrap();
    let mut asked = sampling(5);
    asked.logprobs = Some(2);
    let (prefill, decode) = rig.begin_with(&prompt(10), asked, &ticket).await;
    let (prefilled, decoded) = rig::collect(prefill, decode).await;
    let first = prefilled.unwrap().into_iter().find_map(|event| match event {
        Prefilled::FirstToken(first) => Some(first),
        Prefilled::Progress(_) | Prefilled::HandedOver(_) => None,
    });
    let first = first.unwrap();
    let chosen = first.logprobs.unwrap().chosen.unwrap();
    assert_eq!(chosen.token_id, first.token_id);
    for event in decoded.unwrap() {
        if let Decoded::Delta(delta) = event {
            assert_eq!(delta.logprobs.len(), delta.token_ids.len());
        }
    }
    rig.all_given_back().await;
}
