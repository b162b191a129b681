use super::{Fold, Place, fold};

#[test]
fn one_dense_layer_then_a_hybrid_pattern_is_one_loop() {
    // K = KDA + MoE, M = MLA + MoE, D = KDA + dense: the public Kimi-Linear arrangement, 27 layers.
    let mut layers: Vec<char> = "KKKM".repeat(6).chars().chain("KKM".chars()).collect();
    layers[0] = 'D';
    let folded = fold(&layers);
    assert_eq!(folded.prefix + folded.period * folded.repeats + folded.suffix, 27);
    assert_eq!((folded.period, folded.repeats), (4, 6));
    let mut seen: Vec<usize> = folded.places().flat_map(|place| folded.layers_at(place)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..27).collect::<Vec<_>>());
    for place in folded.places() {
        let kinds: Vec<char> = folded.layers_at(place).iter().map(|&l| layers[l]).collect();
        assert!(kinds.windows(2).all(|w| w[0] == w[1]));
    }
}

#[test]
fn layers_that_do_not_repeat_stay_inline() {
    assert_eq!(fold(&['a', 'b', 'c']), Fold { prefix: 3, period: 0, repeats: 0, suffix: 0 });
    assert_eq!(fold(&['a', 'a']), Fold { prefix: 0, period: 1, repeats: 2, suffix: 0 });
    assert_eq!(fold::<char>(&[]).places().next(), None::<Place>);
}
