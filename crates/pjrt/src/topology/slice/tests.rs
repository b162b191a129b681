use super::{TpuChip, TpuSlice};

#[test]
fn slices_that_can_be_had_are_read_and_written() {
    let slice: TpuSlice = "tpu7x:2x2x4".parse().unwrap();
    assert_eq!((slice.chip(), slice.chips(), slice.devices()), (TpuChip::Tpu7x, 16, 32));
    assert_eq!(slice.to_string(), "tpu7x:2x2x4");
    assert_eq!("v6e:8x8".parse::<TpuSlice>().unwrap().devices(), 64);
}

#[test]
fn shapes_that_only_the_compiler_accepts_are_refused() {
    for name in ["v6e:4x4x4", "tpu7x:4x4", "v6e:", "v6e", "trillium:1x1", "tpu7x:3x3x3"] {
        let error = name.parse::<TpuSlice>().unwrap_err();
        assert!(error.to_string().starts_with(&format!("topology: {name} is none of")), "{error}");
    }
}
