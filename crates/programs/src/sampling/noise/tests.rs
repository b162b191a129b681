use stablehlo::{DType, Module};

use super::{exponential, reference, threefry};
use crate::on_cpu;

/// Known answers of Random123's `kat_vectors` for threefry2x32, 20 rounds: key, counter, output.
const KNOWN: [[[u32; 2]; 3]; 3] = [
    [[0, 0], [0, 0], [0x6b200159, 0x99ba4efe]],
    [[u32::MAX; 2], [u32::MAX; 2], [0x1cb996fc, 0xbb002be7]],
    [[0x13198a2e, 0x03707344], [0x243f6a88, 0x85a308d3], [0xc4923a9c, 0x483df7a0]],
];

#[test]
fn threefry_gives_the_known_answers_on_the_device_and_in_the_reference() {
    let module = Module::new("threefry");
    let f = module.main();
    let ty = DType::U32.tensor([KNOWN.len() as i64]);
    let key = ["k0", "k1"].map(|name| f.input(name, ty.clone()));
    let counter = ["c0", "c1"].map(|name| f.input(name, ty.clone()));
    let [first, second] = threefry(&f, key, counter);
    f.ret(&[("first", first), ("second", second)]);
    let column =
        |part: usize, word: usize| on_cpu::array(&KNOWN.map(|known| known[part][word]), &[KNOWN.len()]);
    let inputs = [column(0, 0), column(0, 1), column(1, 0), column(1, 1)];
    let text = module.finish().unwrap().text;
    let outputs = on_cpu::run(&text, &inputs.iter().collect::<Vec<_>>());
    for (word, output) in outputs.iter().enumerate() {
        assert_eq!(output.to_vec::<u32>().unwrap(), KNOWN.map(|known| known[2][word]));
    }
    for [key, counter, expected] in KNOWN {
        assert_eq!(reference::threefry(key, counter), expected);
    }
}

#[test]
fn variates_are_positive_finite_and_the_reference_s() {
    let (rows, vocabulary) = (4, 50_000);
    let module = Module::new("exponential");
    let f = module.main();
    let ty = DType::U32.tensor([rows as i64]);
    let seed = [f.input("low", ty.clone()), f.input("high", ty)];
    let positions = f.input("positions", DType::S32.tensor([rows as i64]));
    f.ret(&[("variates", exponential(&f, seed, positions, vocabulary as i64))]);
    let (low, high, at) = ([1u32, 1, 7, 1], [0u32, 0, 9, 5], [0i32, 1, 70_000, 0]);
    let inputs = [on_cpu::array(&low, &[rows]), on_cpu::array(&high, &[rows]), on_cpu::array(&at, &[rows])];
    let outputs = on_cpu::run(&module.finish().unwrap().text, &inputs.iter().collect::<Vec<_>>());
    let variates = outputs[0].to_vec::<f32>().unwrap();
    for (index, &variate) in variates.iter().enumerate() {
        let (row, token) = (index / vocabulary, index % vocabulary);
        let seed = u64::from(low[row]) | u64::from(high[row]) << 32;
        let expected = reference::exponential(seed, at[row] as u32, token as u32);
        assert!(variate > 0.0 && variate.is_finite());
        assert!((f64::from(variate) / expected - 1.0).abs() < 1e-5, "{variate} is not {expected}");
    }
    let mean = variates.iter().sum::<f32>() / variates.len() as f32;
    assert!((mean - 1.0).abs() < 0.02, "mean {mean}");
}
