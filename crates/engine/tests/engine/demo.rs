//! The trained demo models with real text, at the chunk lengths they are served with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Role, default_ladder};
use model::ModelConfig;
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
pub(crate) struct Record {
    pub(crate) prompt_ids: Vec<u32>,
    generated_ids: Vec<u32>,
}

pub(crate) fn records(folder: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(folder.join("greedy.json")).unwrap();
    serde_json::from_str::<Recorded>(&text).unwrap().prompts
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// Folders of the demo models.
pub(crate) fn demos() -> [PathBuf; 2] {
    ["k3-demo", "glm-demo"].map(|name| models().join(name))
}

/// As served, with fewer pages: filling a lease with NaN copies all of them.
pub(crate) fn ladder(model: &ModelConfig, drafts: u32) -> ShapeLadder {
    let own = default_ladder(model, drafts);
    ShapeLadder { pages: 3 * own.pages_per_sequence(), slots: 10, ..own }
}

#[tokio::test]
async fn demo_models_write_what_transformers_writes() {
    let folders = std::fs::read_dir(models()).unwrap().map(|entry| entry.unwrap().path());
    let recorded: Vec<PathBuf> = folders.filter(|folder| folder.join("greedy.json").exists()).collect();
    assert!(!recorded.is_empty(), "nothing recorded in {}", models().display());
    for folder in recorded {
        writes_what_was_recorded(folder).await;
    }
}

async fn writes_what_was_recorded(folder: PathBuf) {
    let records = records(&folder);
    assert!(records.len() >= 50, "{} prompts", records.len());
    let model = ModelConfig::from_dir(&folder).unwrap();
    let drafts = engine::drafts_of(&model, None).unwrap();
    let ladder = ShapeLadder { batches: vec![8], ..ladder(&model, drafts) };
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
