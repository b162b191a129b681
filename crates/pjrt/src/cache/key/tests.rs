use super::{Digest, Parts, cpu};

#[test]
fn the_cpu_is_its_instructions_and_not_its_clock() {
    let at = |clock: &str, flags: &str| {
        cpu(&format!(
            "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: {clock}\nflags\t\t: {flags}\n\nprocessor\t: 1\nflags\t: y\n"
        ))
    };
    assert_eq!(at("2100", "avx2"), at("3300", "avx2"));
    assert_ne!(at("2100", "avx2"), at("2100", "avx2 avx512f"));
}

#[test]
fn parts_do_not_run_into_each_other() {
    let digest = |parts: [(&str, &str); 2]| {
        let mut key = Parts::default();
        parts.iter().for_each(|(name, value)| key.add(name, value.as_bytes()));
        key.0.finalize()
    };
    assert_ne!(digest([("a", "bc"), ("d", "")]), digest([("a", "b"), ("cd", "")]));
}
