use std::path::Path;

use model::weights::Float;
use pjrt::{Client, OptionValue, Plugin};

use super::{Landing, bytes};
use crate::{Checkpoint, Wanted};

#[test]
fn both_landings_bring_the_assembled_bytes() {
    let client = Client::open(&pjrt::plugin_path().unwrap()).unwrap();
    let devices = &client.devices()[..1];
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures/k3-1");
    let kinds = [(Float::F32, false), (Float::Bf16, false), (Float::Bf16, true)];
    for (float, int8) in kinds {
        let wanted = Wanted { float, int8, ..Wanted::default() };
        let checkpoint = Checkpoint::open(&fixture, &wanted).unwrap();
        for landing in [Landing::Whole, Landing::Slabs] {
            let (mut seen, mut finished) = (Vec::new(), false);
            let buffers = checkpoint
                .upload_by(landing, &client, devices, |progress| {
                    assert!(!finished && progress.done_bytes <= progress.total_bytes);
                    finished = progress.done == progress.total;
                    assert!(!finished || progress.done_bytes == progress.total_bytes);
                    seen.push(progress.weight.to_owned());
                })
                .unwrap();
            assert!(finished);
            seen.dedup();
            assert!(seen.iter().eq(checkpoint.weights().iter().map(|weight| &weight.name)));
            for (weight, buffers) in checkpoint.weights().iter().zip(&buffers) {
                let [buffer] = buffers.as_slice() else { panic!("{} on one device", weight.name) };
                let dims: Vec<i64> = weight.dims.iter().map(|&dim| dim as i64).collect();
                assert_eq!(buffer.dims(), dims, "{}", weight.name);
                let mut back = vec![0; bytes(weight)];
                buffer.to_host(&mut back).unwrap();
                assert!(back == checkpoint.assemble(weight).unwrap(), "{} {landing:?}", weight.name);
            }
        }
        let errors = checkpoint.int8_error();
        assert_eq!(errors.is_empty(), !int8);
        assert!(errors.iter().all(|(_, error)| (1e-4..2e-2).contains(error)), "{errors:?}");
    }
}

#[test]
fn several_devices_get_their_shares() {
    let plugin = Plugin::load(&pjrt::plugin_path().unwrap()).unwrap();
    let client = Client::new(&plugin, &[("cpu_device_count", OptionValue::Int64(2))]).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures/k3-2");
    for int8 in [false, true] {
        let wanted = Wanted { int8, joined: false, ..Wanted::default() };
        let checkpoint = Checkpoint::open(&fixture, &wanted).unwrap();
        let all = checkpoint.upload(&client, client.devices(), |_| {}).unwrap();
        assert!(checkpoint.weights().iter().any(|weight| weight.cut.is_some_and(|axis| axis > 0)));
        for (weight, buffers) in checkpoint.weights().iter().zip(&all) {
            let whole = checkpoint.assemble(weight).unwrap();
            let size = whole.len() / weight.elements();
            // What lies at a place of the whole lies on the device whose share it is, counted from the share's start.
            let inner = |axis: usize| weight.dims[axis + 1..].iter().product::<usize>();
            let device_of = |element: usize| {
                weight.cut.map(|axis| element / inner(axis) % weight.dims[axis] / (weight.dims[axis] / 2))
            };
            for (number, buffer) in buffers.iter().enumerate() {
                let own = (0..weight.elements()).filter(|&at| device_of(at).is_none_or(|at| at == number));
                let expected: Vec<u8> =
                    own.flat_map(|at| &whole[at * size..(at + 1) * size]).copied().collect();
                let mut back = vec![0; buffer.size_bytes()];
                buffer.to_host(&mut back).unwrap();
                assert!(back == expected, "{} on device {number}", weight.name);
            }
        }
    }
}
