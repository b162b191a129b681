use tonic::{Code, Status};

use super::Fault;
use crate::v1::ErrorReason;

#[test]
fn a_fault_survives_the_wire() {
    for reason in (1..=16).map(|n| ErrorReason::try_from(n).unwrap()) {
        let sent = Fault::new(reason, "pages: need 3, 1 free").with_field("sampling.top_p");
        let read = Fault::from_status(&sent.to_status());
        assert_eq!(read, sent);
    }
}

#[test]
fn a_bare_status_is_judged_by_its_code() {
    let lost = Fault::from_status(&Status::unavailable("connection refused"));
    assert_eq!(lost.reason, ErrorReason::WorkerLost);
    assert!(lost.retry_after.is_some());
    assert_eq!(Fault::from_status(&Status::new(Code::DataLoss, "x")).reason, ErrorReason::Internal);
}
