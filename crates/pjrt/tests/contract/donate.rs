use pjrt::{AlignedBytes, Code, DType, Error, ExecuteOptions};

use crate::setup::{ADD_IN_PLACE, client, compile, device, vector};

#[test]
fn a_donated_argument_keeps_its_place_and_is_gone() {
    let add = compile(ADD_IN_PLACE);
    assert_eq!(add.signature().unwrap().donated, [true, false]);
    let one = vector(&[1f32; 4096]);
    let mut state = vector(&[0f32; 4096]);
    let place = state.address().unwrap();
    for step in 1..=3 {
        let next = add.execute(&[&state, &one]).unwrap().pop().unwrap();
        assert!(state.is_deleted() && !one.is_deleted());
        assert_eq!(next.address().unwrap(), place);
        assert_eq!(next.to_vec::<f32>().unwrap(), [step as f32; 4096]);
        state = next;
    }
}

#[test]
fn a_donated_buffer_is_a_clean_error_everywhere() {
    let add = compile(ADD_IN_PLACE);
    let (state, one) = (vector(&[0f32; 4096]), vector(&[1f32; 4096]));
    add.execute(&[&state, &one]).unwrap();
    let errors = [
        add.execute(&[&state, &one]).unwrap_err(),
        add.execute(&[&one, &state]).unwrap_err(),
        state.to_vec::<f32>().unwrap_err(),
        state.copy_raw_to_host(vec![0; 4], 0).unwrap_err(),
        state.copy_to_device(&client().devices()[1]).unwrap_err(),
        state.ready().unwrap_err(),
        state.address().unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Deleted { .. }), "{error:?}");
        assert_eq!(error.code(), Code::FailedPrecondition);
    }
    assert!(!one.is_deleted(), "a rejected execution consumes nothing");
}

#[test]
fn an_argument_that_must_stay_is_copied() {
    let add = compile(ADD_IN_PLACE);
    let (state, one) = (vector(&[5f32; 4096]), vector(&[1f32; 4096]));
    let keep = ExecuteOptions { non_donatable_indices: vec![0] };
    let execution = add.execute_with(&[&state, &one], &keep).unwrap();
    execution.done.wait().unwrap();
    assert_eq!(execution.outputs[0].to_vec::<f32>().unwrap(), [6.; 4096]);
    assert_eq!(state.to_vec::<f32>().unwrap(), [5.; 4096]);
    let unknown = ExecuteOptions { non_donatable_indices: vec![2] };
    assert!(add.execute_with(&[&state, &one], &unknown).is_err());
}

#[test]
fn the_same_buffer_donated_and_read_is_rejected() {
    let add = compile(ADD_IN_PLACE);
    let state = vector(&[1f32; 4096]);
    let error = add.execute(&[&state, &state]).unwrap_err();
    assert_eq!(error.to_string(), "argument 0 of add_in_place: it is donated and given more than once");
    assert!(!state.is_deleted());
}

#[test]
fn host_memory_is_taken_over_without_a_copy() {
    let add = compile(ADD_IN_PLACE);
    let bytes = AlignedBytes::copy_of(bytemuck::cast_slice(&[2f32; 4096]));
    let place = bytes.as_ptr() as usize;
    let state = client().buffer_from_aligned(bytes, DType::F32, &[4096], device()).unwrap();
    assert_eq!(state.address().unwrap(), place);
    let next = add.execute(&[&state, &vector(&[1f32; 4096])]).unwrap().pop().unwrap();
    assert_eq!(next.address().unwrap(), place);
    assert_eq!(next.to_vec::<f32>().unwrap(), [3.; 4096]);
}
