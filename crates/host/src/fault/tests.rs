use super::*;

#[test]
fn who_can_retry_is_told_so() {
    let too_long = Error::TooLong { field: "prompt", tokens: 9, context: 8 };
    let told = fault(&too_long);
    assert_eq!((told.reason, told.field.as_deref()), (ErrorReason::ContextLength, Some("prompt")));
    assert_eq!(told.retry_after, None);
    assert!(fault(&Error::QueueFull { waiting: 1 }).retry_after.is_some());
    assert!(fault(&Error::StateLost).retry_after.is_some());
}
