//! The trained demo model with real text, at the chunk lengths it is served with.

use std::path::Path;
use std::time::Duration;

use engine::{Role, default_ladder};
use programs::ShapeLadder;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::rig::{Rig, config, greedy, ids, job, run};

#[derive(Deserialize)]
struct Recorded {
    prompts: Vec<Record>,
}

/// A prompt and how `transformers` continues it greedily, up to the first near tie.
#[derive(Clone, Deserialize)]
struct Record {
    prompt_ids: Vec<u32>,
    generated_ids: Vec<u32>,
}

#[tokio::test]
async fn the_demo_model_writes_what_transformers_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tandem-demo");
    let text = std::fs::read_to_string(folder.join("greedy.json")).unwrap();
    let records = serde_json::from_str::<Recorded>(&text).unwrap().prompts;
    assert!(records.len() >= 50, "{} prompts", records.len());
    let model = model::ModelConfig::from_dir(&folder).unwrap();
    let ladder = ShapeLadder { batches: vec![8], slots: 10, ..default_ladder(&model) };
    let mut config = config("", Role::Both, ladder);
    config.model_dir = folder;
    let rig = Rig::start(config);
    let mut rng = StdRng::seed_from_u64(8);
    let mut tasks = JoinSet::new();
    for record in records.into_iter().filter(|record| !record.generated_ids.is_empty()) {
        while tasks.len() >= 8 {
            tasks.join_next().await.unwrap().unwrap();
        }
        let handle = rig.handle();
        let delay = Duration::from_millis(rng.random_range(0..50));
        tasks.spawn(async move {
            tokio::time::sleep(delay).await;
            let tokens = run(&handle, job(&record.prompt_ids, greedy(record.generated_ids.len()))).await;
            assert_eq!(ids(&tokens), record.generated_ids, "prompt of {} tokens", record.prompt_ids.len());
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    rig.settle().await;
}
