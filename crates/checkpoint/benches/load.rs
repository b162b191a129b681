//! How long a model folder takes to load, beside a plain read of the same files.
//!
//! `cargo bench -p tandem-checkpoint --bench load -- FOLDER [f32|bf16|int8]`, with the folder's files in the page cache.
//! `-- write k3-bf16|k3-mxfp4|glm-fp8 FOLDER [EXPERTS]` makes a folder to measure, of about a gigabyte where nothing is said.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use checkpoint::{Checkpoint, Wanted};
use model::weights::Float;
use pjrt::{Client, plugin_path};
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};

use synthetic::{Form, Part, Random};

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/checkpoint/synthetic.rs"]
mod synthetic;

/// Bytes of a written shard.
const SHARD: usize = 256 << 20;
/// Bytes that the plain read takes at a time.
const READ: usize = 1 << 20;
/// Runs of which the fastest counts.
const RUNS: usize = 3;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["write", kind, dir] => write(kind, Path::new(dir), None),
        ["write", kind, dir, experts] => write(kind, Path::new(dir), Some(experts.parse().unwrap())),
        [dir] => measure(Path::new(dir), "f32"),
        [dir, wanted] => measure(Path::new(dir), wanted),
        _ => println!("load: name a folder, or `write` one"),
    }
}

fn measure(dir: &Path, encoding: &str) {
    let wanted = match encoding {
        "f32" => Wanted::default(),
        "bf16" => Wanted { float: Float::Bf16, ..Wanted::default() },
        "int8" => Wanted { float: Float::Bf16, int8: true, ..Wanted::default() },
        other => panic!("{other} is none of f32, bf16, int8"),
    };
    let (bytes, read) = fastest(|| plain_read(dir));
    let client = Client::open(&plugin_path().unwrap()).unwrap();
    let resident = status("VmRSS");
    let ((checkpoint, held, _), load) = fastest(|| {
        let checkpoint = Checkpoint::open(dir, &wanted).unwrap();
        let mut held = 0;
        let weights =
            checkpoint.upload(&client, &client.devices()[..1], |progress| held = progress.total_bytes);
        (checkpoint, held, weights.unwrap())
    });
    let (_, digest) = fastest(|| checkpoint.digest().unwrap());
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    println!("{}: {:.2} GiB, as {encoding} {:.2} GiB", dir.display(), gib(bytes), gib(held));
    for (what, times) in [("plain read", read), ("load", load), ("digest", digest)] {
        let [wall, cpu] = times.map(|time| time.as_secs_f64());
        println!("  {what}: {:.2} GiB/s, {:.2} CPU-seconds per GiB", gib(bytes) / wall, cpu / gib(bytes));
    }
    let [wall, cpu] = [0, 1].map(|at| load[at].as_secs_f64() / read[at].as_secs_f64());
    println!("  a load takes {wall:.2} times a plain read's time, {cpu:.2} times its CPU time");
    let above = status("VmHWM").saturating_sub(resident + held) >> 10;
    println!(
        "  host memory beside the weights: {above} KiB; by the cores {} KiB",
        checkpoint.working_bytes() >> 10
    );
    let errors = checkpoint.int8_error();
    for (role, error) in errors {
        println!("  int8 {role}: relative rms error {error:.5}");
    }
}

/// The least wall time and the least CPU time of some runs, and the last run's result.
fn fastest<T>(mut run: impl FnMut() -> T) -> (T, [Duration; 2]) {
    let mut timed = || {
        let (start, cpu) = (Instant::now(), cpu_time());
        let result = run();
        (result, [start.elapsed(), cpu_time() - cpu])
    };
    let (mut result, mut least) = timed();
    for _ in 1..RUNS {
        drop(result);
        let (next, times) = timed();
        result = next;
        least = [least[0].min(times[0]), least[1].min(times[1])];
    }
    (result, least)
}

/// What all threads of this process have had of the cores: the only fair measure where others use them too.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// Reads the folder's tensors as `cat` would, one file after the other.
fn plain_read(dir: &Path) -> u64 {
    let mut block = vec![0; READ];
    let mut total = 0;
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.extension().is_some_and(|end| end == "safetensors")) {
        let mut file = File::open(path).unwrap();
        loop {
            match file.read(&mut block).unwrap() {
                0 => break,
                read => total += read as u64,
            }
        }
    }
    total
}

/// A line of `/proc/self/status`, in bytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn write(kind: &str, dir: &Path, count: Option<usize>) {
    let is_expert = |name: &str| name.contains(".experts.");
    let experts = |usual: usize| {
        let count = count.unwrap_or(usual);
        json!({
            "hidden_size": 1024, "intermediate_size": 4096, "vocab_size": 32_768, "moe_intermediate_size": 512,
            "max_position_embeddings": 4096, "routed_expert_hidden_size": 768, "num_experts": count, "n_routed_experts": count
        })
    };
    let (config, packed) = match kind {
        "k3-bf16" => (synthetic::config("k3-1", &experts(48)), Form::Bf16),
        "k3-mxfp4" => (synthetic::config("k3-1", &experts(160)), Form::Mxfp4),
        "glm-fp8" => (synthetic::config("glm-1", &experts(96)), Form::Fp8),
        other => panic!("{other} is none of k3-bf16, k3-mxfp4, glm-fp8"),
    };
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let mut random = Random(1);
    let (mut shard, mut map, mut files) = (Vec::new(), Map::new(), 0);
    let mut flush = |shard: &mut Vec<Part>| {
        files += 1;
        let path = dir.join(format!("model-{files:05}.safetensors"));
        for part in shard.iter() {
            map.insert(part.name.clone(), Value::from(format!("model-{files:05}.safetensors")));
        }
        save(&path, &std::mem::take(shard));
    };
    for (name, dims) in synthetic::needed(&config) {
        let form = if is_expert(&name) { packed } else { Form::Bf16 };
        shard.extend(synthetic::stored(&name, &dims, form, &mut random));
        if shard.iter().map(|part| part.bytes.len()).sum::<usize>() >= SHARD {
            flush(&mut shard);
        }
    }
    flush(&mut shard);
    std::fs::write(dir.join("model.safetensors.index.json"), json!({"weight_map": map}).to_string()).unwrap();
}

fn save(path: &Path, parts: &[Part]) {
    let views = parts.iter().map(|part| {
        (part.name.clone(), TensorView::new(part.dtype, part.dims.clone(), &part.bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}
