//! One engine prefills on some devices, another decodes on more or fewer.

use std::num::NonZeroUsize;

use engine::{EngineConfig, Role, default_ladder};
use model::ModelConfig;
use programs::ShapeLadder;

use crate::demo::{demo, records};
use crate::hand_over::across;
use crate::rig::{Rig, config, greedy};

fn start(name: &str, role: Role, devices: usize, page_tokens: u32) -> Rig {
    let model_dir = demo(name);
    let own = default_ladder(&ModelConfig::from_dir(&model_dir).unwrap(), 3);
    let pages = 3 * (own.context.div_ceil(page_tokens) + 1);
    let ladder = ShapeLadder { chunks: vec![96], batches: vec![4], page_tokens, pages, slots: 4, ..own };
    let devices = NonZeroUsize::new(devices);
    Rig::start(EngineConfig { model_dir, devices, drafts: Some(3), ..config("", role, ladder) })
}

async fn writes_what_was_recorded(name: &str, devices: [usize; 2]) {
    let sender = start(name, Role::Prefill, devices[0], 48);
    let receiver = start(name, Role::Decode, devices[1], 64);
    let (mut drafted, mut prompts) = (0, 0);
    let records = records(&demo(name));
    for record in records.into_iter().filter(|record| record.generated_ids.len() > 1).step_by(12) {
        let sampling = greedy(record.generated_ids.len());
        let (tokens, drafts) =
            across(&sender.handle(), &receiver.handle(), &record.prompt_ids, &sampling).await;
        assert_eq!(tokens, record.generated_ids, "prompt of {} tokens", record.prompt_ids.len());
        drafted += drafts.accepted;
        prompts += 1;
    }
    assert!(prompts >= 5 && drafted > 0, "{prompts} prompts, {drafted} drafts accepted");
    sender.settle().await;
    receiver.settle().await;
}

#[tokio::test]
async fn k3_demo_prefilled_on_two_devices_goes_on_on_four() {
    writes_what_was_recorded("k3-demo", [2, 4]).await;
}

#[tokio::test]
async fn glm_demo_prefilled_on_four_devices_goes_on_on_two() {
    writes_what_was_recorded("glm-demo", [4, 2]).await;
}
