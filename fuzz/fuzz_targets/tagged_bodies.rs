#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    kvxfer::fuzz::tagged_bodies(bytes);
});
