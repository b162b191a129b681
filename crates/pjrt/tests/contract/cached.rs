use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pjrt::cache::{ExecutableCache, Hit, Miss};
use pjrt::{CompileOptions, Executable};

use crate::setup::{ADD, ADD_IN_PLACE, client, vector};

fn adds(add: &Executable) {
    let a = vector(&[1f32, 2., 3., 4.]);
    assert_eq!(add.execute(&[&a, &a]).unwrap()[0].to_vec::<f32>().unwrap(), [2., 4., 6., 8.]);
}

#[test]
fn a_program_is_compiled_once_and_any_damage_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ExecutableCache::new(folder.path().join("programs"));
    let options = CompileOptions::default();
    let get = |program: &str| cache.get_or_compile(client(), program, &options).unwrap();
    let path = cache.path(client(), ADD, &options).unwrap();

    let (add, hit) = get(ADD);
    adds(&add);
    assert!(matches!(hit, Hit::Compiled { why: Miss::Absent, not_stored: None }), "{hit:?}");
    let (loaded, hit) = get(ADD);
    adds(&loaded);
    assert!(hit.is_disk());
    assert_eq!((loaded.signature(), loaded.name()), (add.signature(), add.name()));

    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&whole[..whole.len() - 1], &whole[..60], &[], &flipped] {
        fs::write(&path, damaged).unwrap();
        let (add, hit) = get(ADD);
        adds(&add);
        assert!(matches!(hit, Hit::Compiled { why: Miss::Damaged(_), not_stored: None }), "{hit:?}");
        assert!(get(ADD).1.is_disk(), "the damaged file was replaced");
    }

    // A good file under the name of another program.
    let other = cache.path(client(), ADD_IN_PLACE, &options).unwrap();
    fs::copy(&path, &other).unwrap();
    let (in_place, hit) = get(ADD_IN_PLACE);
    assert!(matches!(hit, Hit::Compiled { why: Miss::Damaged(_), .. }), "{hit:?}");
    assert_eq!(in_place.name(), "add_in_place");
    assert_eq!(get(ADD_IN_PLACE).0.signature().unwrap().donated, [true, false]);
    let left: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 2, "no half-written files: {left:?}");
}

#[test]
fn options_and_devices_have_their_own_entries() {
    let cache = ExecutableCache::new("unused");
    let path = |options: &CompileOptions| cache.path(client(), ADD, options).unwrap();
    let paths = [path(&CompileOptions::default()), path(&CompileOptions::on_device(&client().devices()[1]))];
    assert_ne!(paths[0], paths[1]);
}

#[test]
fn who_comes_together_compiles_once() {
    let folder = tempfile::tempdir().unwrap();
    let compiled = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let cache = ExecutableCache::new(folder.path());
                for _ in 0..3 {
                    let (add, hit) = cache.get_or_compile(client(), ADD, &CompileOptions::default()).unwrap();
                    match hit {
                        Hit::Disk => {}
                        Hit::Compiled { why: Miss::Absent, not_stored: None } => {
                            compiled.fetch_add(1, Ordering::Relaxed);
                        }
                        Hit::Compiled { .. } => panic!("{hit:?}"),
                    }
                    adds(&add);
                }
            });
        }
    });
    assert_eq!(compiled.into_inner(), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a lock is left behind");
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let cache = ExecutableCache::new(file.path());
    let (add, hit) = cache.get_or_compile(client(), ADD, &CompileOptions::default()).unwrap();
    adds(&add);
    assert!(matches!(hit, Hit::Compiled { not_stored: Some(_), .. }), "{hit:?}");
}
