use half::{bf16, f16};
use pjrt::{DType, Element, Error};

use crate::setup::{client, compile, device, vector};

fn comes_back<T: Element + PartialEq + std::fmt::Debug>(elements: &[T]) {
    let buffer = client().buffer_from_slice(elements, &[2, elements.len() as i64 / 2], device()).unwrap();
    assert_eq!((buffer.dtype(), buffer.dims()[0], buffer.size_bytes()), (T::DTYPE, 2, size_of_val(elements)));
    assert_eq!(buffer.to_vec::<T>().unwrap(), elements);
}

#[test]
fn numbers_of_every_width_come_back() {
    comes_back(&[-1.5f32, 0., f32::MAX, f32::MIN_POSITIVE]);
    comes_back(&[1e300f64, -0.]);
    comes_back(&[bf16::from_f32(-1.25), bf16::MAX, bf16::from_f32(3.0e-3), bf16::ONE]);
    comes_back(&[f16::from_f32(0.1), f16::MIN]);
    comes_back(&[i8::MIN, -1, 1, i8::MAX]);
    comes_back(&[i16::MIN, i16::MAX]);
    comes_back(&[i32::MIN, i32::MAX]);
    comes_back(&[i64::MIN, i64::MAX]);
    comes_back(&[0u8, 255]);
    comes_back(&[0u16, u16::MAX]);
    comes_back(&[0u32, u32::MAX]);
    comes_back(&[0u64, u64::MAX]);
    comes_back::<f32>(&[]);
}

#[test]
fn types_without_a_rust_number_travel_as_bytes() {
    let bytes: Vec<u8> = (0..12).collect();
    for dtype in [DType::F8E4M3FN, DType::F8E5M2, DType::F8E8M0FNU] {
        let buffer = client().buffer_from_host(&bytes, dtype, &[3, 4], device()).unwrap();
        let mut back = vec![0; 12];
        buffer.to_host(&mut back).unwrap();
        assert_eq!((back, buffer.dtype()), (bytes.clone(), dtype));
    }
    let flags = client().buffer_from_host(&[0, 1, 1], DType::Pred, &[3], device()).unwrap();
    let mut back = [9; 3];
    flags.to_host(&mut back).unwrap();
    assert_eq!(back, [0, 1, 1]);
    let nibbles = client().buffer_from_host(&[0, 1, 7, 15], DType::F4E2M1FN, &[4], device()).unwrap();
    let mut back = [9; 4];
    nibbles.to_host(&mut back).unwrap();
    assert_eq!(back, [0, 1, 7, 15]);
}

#[test]
fn int8_and_bfloat16_compute() {
    let dot = compile(
        "func.func public @main(%a: tensor<2x3xi8>, %b: tensor<2x3xi8>) -> tensor<2x2xi32> {
           %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<2x3xi8>, tensor<2x3xi8>) -> tensor<2x2xi32>
           return %r : tensor<2x2xi32>
         }",
    );
    let a = client().buffer_from_slice(&[1i8, -2, 3, 100, 100, 100], &[2, 3], device()).unwrap();
    assert_eq!(dot.execute(&[&a, &a]).unwrap()[0].to_vec::<i32>().unwrap(), [14, 200, 200, 30000]);
    let double = compile(
        "func.func public @main(%a: tensor<4xbf16>) -> tensor<4xbf16> {
           %r = stablehlo.add %a, %a : tensor<4xbf16>
           return %r : tensor<4xbf16>
         }",
    );
    let a = [1., -0.5, 3.0e-3, 1.0e30].map(bf16::from_f32);
    let doubled = double.execute(&[&vector(&a)]).unwrap()[0].to_vec::<bf16>().unwrap();
    assert_eq!(doubled, a.map(|value| value + value));
}

#[test]
fn a_range_of_bytes_is_read_alone() {
    let elements: Vec<u32> = (0..1000).collect();
    let buffer = vector(&elements);
    let read = |len: usize, offset: usize| buffer.copy_raw_to_host(vec![0u8; len], offset);
    let bytes = read(40, 400).unwrap().wait().unwrap();
    assert_eq!(
        bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned::<u32>).collect::<Vec<_>>(),
        (100..110).collect::<Vec<_>>()
    );
    assert_eq!(read(4000, 0).unwrap().wait().unwrap().len(), 4000);
    for (len, offset) in [(1, 4000), (4001, 0), (8, usize::MAX - 3)] {
        assert!(matches!(read(len, offset), Err(Error::Argument { .. })), "{len} bytes from {offset}");
    }
}

#[test]
fn sizes_and_shapes_that_do_not_fit_are_rejected() {
    let upload = |bytes: &[u8], dims: &[i64]| client().buffer_from_host(bytes, DType::F32, dims, device());
    assert_eq!(upload(&[0; 12], &[4]).unwrap_err().to_string(), "bytes: 12 bytes given, 4xf32 takes 16");
    for dims in [&[-1i64][..], &[i64::MAX, 2], &[1 << 40, 1 << 40]] {
        assert!(matches!(upload(&[], dims), Err(Error::Argument { .. })), "{dims:?}");
    }
    let buffer = vector(&[1f32; 4]);
    assert!(buffer.to_host(&mut [0; 15]).is_err());
    assert!(buffer.to_vec::<i32>().is_err());
}

#[test]
fn a_buffer_moves_to_another_device() {
    let [first, second, ..] = client().devices() else { panic!("one device") };
    let buffer = vector(&[1i32, 2, 3]);
    let copy = buffer.copy_to_device(second).unwrap();
    assert_eq!(copy.device().id(), second.id());
    assert_eq!(copy.to_vec::<i32>().unwrap(), [1, 2, 3]);
    assert!(buffer.copy_to_device(first).is_err());
}

#[test]
fn an_uninitialised_buffer_has_its_shape() {
    let buffer = client().buffer_uninit(DType::BF16, &[8, 16], device()).unwrap();
    assert_eq!((buffer.dims(), buffer.device_size_bytes().unwrap()), (&[8, 16][..], 256));
    assert_eq!(buffer.to_vec::<bf16>().unwrap().len(), 128);
}
