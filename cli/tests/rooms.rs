//! The rooms of ARCHITECTURE.md: crates use only what its table says, and files stay small.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::{DependencyKind, MetadataCommand};

const LONGEST_FILE: usize = 600;
const LONGEST_MAIN: usize = 60;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Rows `| `name` ... | sentence | a, b |` of the table.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rooms = text.split("## Rooms").nth(1).unwrap().split("\n## ").next().unwrap();
    rooms
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let name = cells[0].split('`').nth(1).unwrap().to_owned();
            let uses = cells[2].split(',').map(str::trim).filter(|name| *name != "-");
            (name, uses.map(str::to_owned).collect())
        })
        .collect()
}

#[test]
fn crates_use_only_what_the_table_says() {
    let table = table();
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let room = |package: &str| package.strip_prefix("tandem-").map(str::to_owned);
    let mut seen = BTreeSet::new();
    for package in metadata.workspace_packages() {
        let name = room(&package.name).unwrap_or_else(|| panic!("{} lacks the prefix", package.name));
        let mut folder = package.manifest_path.parent().unwrap();
        if folder.ends_with("sdk/rust") {
            // The SDKs of all languages are one room.
            folder = folder.parent().unwrap();
        }
        assert_eq!(folder.file_name().unwrap(), name, "folder name = crate name");
        let allowed = table.get(&name).unwrap_or_else(|| panic!("{name} is not in the table"));
        let used: BTreeSet<String> = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind == DependencyKind::Normal)
            .filter_map(|dependency| room(&dependency.name))
            .collect();
        let new: Vec<_> = used.difference(allowed).collect();
        assert!(new.is_empty(), "{name} uses {new:?}, which the table does not allow");
        seen.insert(name);
    }
    let gone: Vec<_> = table.keys().filter(|name| !seen.contains(*name)).collect();
    assert!(gone.is_empty(), "the table names {gone:?}, which no crate is");
}

#[test]
fn pure_rooms_know_no_runtime_clock_or_device() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let pure: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("` (pure)"))
        .map(|line| line.split('`').nth(1).unwrap())
        .collect();
    assert!(pure.len() >= 5, "the table marks the pure rooms");
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    for package in metadata.workspace_packages() {
        if !pure.contains(&package.name.trim_start_matches("tandem-")) {
            continue;
        }
        for dependency in package.dependencies.iter().filter(|one| one.kind == DependencyKind::Normal) {
            let banned = ["tokio", "tonic", "tandem-pjrt", "rand"].contains(&dependency.name.as_str());
            assert!(!banned, "{} is pure, and uses {}", package.name, dependency.name);
        }
        for file in sources(package.manifest_path.parent().unwrap().as_std_path()) {
            let code = fs::read_to_string(&file).unwrap();
            let tests =
                file.ends_with("tests.rs") || file.components().any(|part| part.as_os_str() == "tests");
            let clock = ["Instant::now", "SystemTime::now", "thread::spawn"]
                .iter()
                .find(|call| code.contains(**call));
            assert!(tests || clock.is_none(), "{} is pure, and calls {}", file.display(), clock.unwrap());
        }
    }
}

#[test]
fn files_are_small() {
    for file in sources(&root()) {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let limit = if file.ends_with("src/main.rs") { LONGEST_MAIN } else { LONGEST_FILE };
        assert!(lines <= limit, "{} has {lines} lines, at most {limit} are allowed", file.display());
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(!["mod", "utils", "common", "helpers"].contains(&name), "{} has no subject", file.display());
    }
}

/// Every Rust file below `folder` that is ours.
fn sources(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// Every file of the given kinds below `folder` that is ours.
fn files(folder: &Path, kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && !["target", "build"].contains(&name) {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kinds.iter().any(|one| kind == *one)) {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn every_known_failure_has_the_tests_it_names() {
    let list = fs::read_to_string(root().join("docs/known-failures.md")).unwrap();
    let rows = list.lines().filter(|line| line.contains('#') && line.starts_with("| "));
    let files = files(&root(), &["rs", "py"]);
    let code: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    for row in rows {
        let tests = row.rsplit(" | ").next().unwrap().split('`').skip(1).step_by(2);
        let tests: Vec<&str> = tests.collect();
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            let defined = [format!("fn {test}("), format!("def test_{test}(")];
            assert!(defined.iter().any(|line| code.contains(line)), "there is no test {test}");
        }
    }
}
