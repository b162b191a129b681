use std::path::Path;

use model::weights::Float;
use pjrt::Client;

use super::{Landing, bytes};
use crate::{Checkpoint, Wanted};

#[test]
fn both_landings_bring_the_assembled_bytes() {
    let client = Client::open(&pjrt::plugin_path().unwrap()).unwrap();
    let device = &client.devices()[0];
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures/k3-1");
    let kinds = [(Float::F32, false), (Float::Bf16, false), (Float::Bf16, true)];
    for (float, int8) in kinds {
        let wanted = Wanted { float, int8, ..Wanted::default() };
        let checkpoint = Checkpoint::open(&fixture, &wanted).unwrap();
        for landing in [Landing::Whole, Landing::Slabs] {
            let (mut seen, mut finished) = (Vec::new(), false);
            let buffers = checkpoint
                .upload_by(landing, &client, device, |progress| {
                    assert!(!finished && progress.done_bytes <= progress.total_bytes);
                    finished = progress.done == progress.total;
                    assert!(!finished || progress.done_bytes == progress.total_bytes);
                    seen.push(progress.weight.to_owned());
                })
                .unwrap();
            assert!(finished);
            seen.dedup();
            assert!(seen.iter().eq(checkpoint.weights().iter().map(|weight| &weight.name)));
            for (weight, buffer) in checkpoint.weights().iter().zip(&buffers) {
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
