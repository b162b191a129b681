//! The trained demo models with real text. What they are served with, the cluster's tests run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{EngineConfig, PrefixCache, Role, default_ladder};
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
    pub(crate) generated_ids: Vec<u32>,
}

pub(crate) fn records(folder: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(folder.join("greedy.json")).unwrap();
    serde_json::from_str::<Recorded>(&text).unwrap().prompts
}

/// Folder of a demo model.
pub(crate) fn demo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name)
}

/// One set of shapes for all tests of a demo model, so that each program is compiled once: neither pages nor chunks are filled
/// by hash units, and pages are few, because filling a lease with NaN copies all of them.
pub(crate) fn start(folder: &Path, drafts: u32, prefix: Option<PrefixCache>) -> Rig {
    let model = ModelConfig::from_dir(folder).unwrap();
    let own = default_ladder(&model, drafts);
    let pages = 3 * (own.context.div_ceil(48) + 1);
    let ladder = ShapeLadder { chunks: vec![96], batches: vec![4], page_tokens: 48, pages, slots: 10, ..own };
    Rig::start(EngineConfig {
        model_dir: folder.to_owned(),
        drafts: Some(drafts),
        prefix,
        ..config("", Role::Both, ladder)
    })
}

#[tokio::test]
async fn k3_demo_writes_what_transformers_writes() {
    writes_what_was_recorded(demo("k3-demo")).await;
}

#[tokio::test]
async fn glm_demo_writes_what_transformers_writes() {
    writes_what_was_recorded(demo("glm-demo")).await;
}

async fn writes_what_was_recorded(folder: PathBuf) {
    let records = records(&folder);
    assert!(records.len() >= 50, "{} prompts", records.len());
    let rig = start(&folder, 3, None);
    let mut rng = StdRng::seed_from_u64(8);
    let mut tasks = JoinSet::new();
    for record in records.into_iter().step_by(2).filter(|record| !record.generated_ids.is_empty()) {
        while tasks.len() >= 6 {
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
