use super::*;

#[tokio::test]
async fn a_full_queue_does_not_keep_the_end_away() {
    let (sender, mut reader) = outlet(2);
    assert_eq!((sender.send(1), sender.send(2), sender.send(3)), (Ok(()), Ok(()), Err(NotSent::Full)));
    sender.end(Err(Error::SlowReader { events: 2 }));
    assert!(matches!(reader.next().await, Some(Ok(1))));
    assert!(matches!(reader.next().await, Some(Ok(2))));
    assert!(matches!(reader.next().await, Some(Err(Error::SlowReader { events: 2 }))));
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn no_stream_ends_silently() {
    let (sender, mut reader) = outlet::<u32>(2);
    drop(sender);
    assert!(matches!(reader.next().await, Some(Err(Error::Stopped))));
    assert!(reader.next().await.is_none());
    let (sender, reader) = outlet(2);
    drop(reader);
    assert!(sender.is_abandoned());
    assert_eq!(sender.send(1), Err(NotSent::Gone));
}
