use std::time::Duration;

use pjrt::{Code, DType, Error, Shape};

use crate::setup::{ADD_IN_PLACE, client, compile, device, vector};

#[tokio::test]
async fn a_buffer_is_filled_in_pieces_out_of_order() {
    let shapes = [Shape::new(DType::U32, &[1000]), Shape::new(DType::F32, &[4096])];
    let manager = client().async_transfer(&shapes, device()).unwrap();
    assert_eq!(manager.buffer_size(1).unwrap(), 16384);
    let (numbers, floats) = (manager.retrieve(0).unwrap(), manager.retrieve(1).unwrap());
    // An execution may be queued before the bytes of its argument are there.
    let sum = std::thread::spawn(move || {
        compile(ADD_IN_PLACE).execute(&[&vector(&[1f32; 4096]), &floats]).unwrap()
    });
    let elements: Vec<u32> = (0..1000).collect();
    let bytes: &[u8] = bytemuck::cast_slice(&elements);
    let late = manager.transfer_raw(0, bytes[2000..].to_vec(), 2000, false).unwrap();
    assert!(!numbers.ready().unwrap().is_ready());
    let early = manager.transfer_raw(0, bytes[..2000].to_vec(), 0, true).unwrap();
    assert_eq!(late.await.unwrap(), bytes[2000..]);
    early.await.unwrap();
    numbers.ready().unwrap().await.unwrap();
    assert_eq!(numbers.to_vec::<u32>().unwrap(), elements);
    manager.transfer_raw(1, bytemuck::cast_slice(&[2f32; 4096]).to_vec(), 0, true).unwrap().await.unwrap();
    assert_eq!(sum.join().unwrap()[0].to_vec::<f32>().unwrap(), [3.; 4096]);
}

#[test]
fn what_would_abort_is_rejected() {
    let manager = client().async_transfer(&[Shape::new(DType::U8, &[8])], device()).unwrap();
    let send = |index, len, offset, last| manager.transfer_raw(index, vec![0u8; len], offset, last).map(drop);
    let rejected =
        |outcome: pjrt::Result<()>| assert!(matches!(outcome, Err(Error::Argument { .. })), "{outcome:?}");
    rejected(send(1, 1, 0, false));
    rejected(send(0, 9, 0, false));
    rejected(send(0, 1, 8, false));
    send(0, 8, 0, true).unwrap();
    rejected(send(0, 1, 0, false));
    let buffer = manager.retrieve(0).unwrap();
    rejected(manager.retrieve(0).map(drop));
    rejected(manager.retrieve(1).map(drop));
    drop(manager);
    assert_eq!(buffer.to_vec::<u8>().unwrap(), [0; 8]);
}

#[tokio::test]
async fn a_transfer_given_up_fails_instead_of_hanging() {
    let manager = client().async_transfer(&[Shape::new(DType::U8, &[8])], device()).unwrap();
    let buffer = manager.retrieve(0).unwrap();
    manager.transfer_raw(0, vec![1u8; 4], 0, false).unwrap().await.unwrap();
    drop(manager);
    let outcome = tokio::time::timeout(Duration::from_secs(10), buffer.ready().unwrap()).await.unwrap();
    assert_eq!(outcome.unwrap_err().code(), Code::Cancelled);
}
