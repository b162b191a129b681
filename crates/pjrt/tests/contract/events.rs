use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use futures::future::{join_all, select};
use pjrt::{DType, ExecuteOptions};

use crate::setup::{ADD, SLOW, client, compile, device, identity, vector};

#[tokio::test]
async fn an_event_is_a_future_that_may_be_polled_from_any_task() {
    let slow = compile(SLOW);
    let start = identity();
    let execution = slow.execute_with(&[&start], &ExecuteOptions::default()).unwrap();
    let ready = execution.outputs[0].ready().unwrap();
    let waiting = tokio::spawn(ready);
    tokio::time::timeout(Duration::from_secs(30), execution.done).await.unwrap().unwrap();
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_thousand_events_all_wake() {
    let add = compile(ADD);
    let (a, b) = (vector(&[1f32; 4]), vector(&[2f32; 4]));
    let run = || add.execute_with(&[&a, &b], &ExecuteOptions::default()).unwrap().done;
    let events: Vec<_> = (0..1000).map(|_| run()).collect();
    let outcomes = tokio::time::timeout(Duration::from_secs(30), join_all(events)).await.unwrap();
    assert!(outcomes.iter().all(Result::is_ok));
}

#[tokio::test]
async fn an_event_polled_first_by_another_task_wakes_the_last_one() {
    let slow = compile(SLOW);
    let mut done = slow.execute_with(&[&identity()], &ExecuteOptions::default()).unwrap().done;
    // Polled once here, then moved to another task: the second waker must replace the first.
    let now = std::future::ready(());
    drop(select(&mut done, now).await);
    let outcome = tokio::time::timeout(Duration::from_secs(30), tokio::spawn(done)).await.unwrap();
    outcome.unwrap().unwrap();
}

#[tokio::test]
async fn a_download_gives_its_memory_back() {
    let buffer = compile(SLOW).execute(&[&identity()]).unwrap().pop().unwrap();
    let target = Vec::with_capacity(buffer.size_bytes() + 64);
    let mut target: Vec<u8> = target;
    target.resize(buffer.size_bytes(), 0xff);
    let place = target.as_ptr();
    let filled = buffer.to_host_async(target).unwrap().await.unwrap();
    assert_eq!(filled.as_ptr(), place);
    assert_eq!(filled, bytemuck::cast_slice::<f32, u8>(&identity().to_vec::<f32>().unwrap()));
}

#[test]
fn a_download_nobody_waits_for_does_no_harm() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    struct Counted(Vec<u8>, mpsc::Sender<()>);
    impl AsMut<[u8]> for Counted {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Ordering::SeqCst);
            let _ = self.1.send(());
        }
    }
    let (sender, dropped) = mpsc::channel();
    let buffer = compile(SLOW).execute(&[&identity()]).unwrap().pop().unwrap();
    LIVE.fetch_add(1, Ordering::SeqCst);
    let target = Counted(vec![0; buffer.size_bytes()], sender);
    drop(buffer.to_host_async(target).unwrap());
    drop(buffer);
    dropped.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(LIVE.load(Ordering::SeqCst), 0);
}

#[test]
fn an_owner_lives_as_long_as_the_buffer_that_reads_it() {
    struct Owner(Vec<u64>, mpsc::Sender<()>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            let _ = self.1.send(());
        }
    }
    let (sender, dropped) = mpsc::channel();
    let owner = || Owner((0..1 << 16).collect(), sender.clone());
    let uploaded = client().buffer_from_owned(owner(), DType::U64, &[1 << 16], device()).unwrap();
    dropped.recv_timeout(Duration::from_secs(30)).expect("read, then dropped, although the buffer lives");
    let shared = client().buffer_from_shared(owner(), DType::U64, &[1 << 16], device()).unwrap();
    for buffer in [&uploaded, &shared] {
        assert_eq!(buffer.to_vec::<u64>().unwrap(), (0..1 << 16).collect::<Vec<_>>());
    }
    drop(shared);
    dropped.recv_timeout(Duration::from_secs(30)).expect("dropped with the buffer");
}
