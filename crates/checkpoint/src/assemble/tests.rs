use half::bf16;
use proptest::prelude::{any, proptest};

proptest! {
    #[test]
    fn bf16_is_rounded_to_nearest_even(bits in any::<u32>()) {
        let value = f32::from_bits(bits);
        if value.is_finite() {
            assert_eq!(super::bf16(value), bf16::from_f32(value).to_bits());
        }
    }
}
