use super::{EndKey, NobodysKey, PublicEnd};
use crate::ticket::Secret;

#[test]
fn both_ends_come_to_one_secret_and_nobody_else_does() {
    let [sender, receiver, thief] = [1, 2, 3].map(|byte| EndKey::new([byte; 32]));
    let (ticket, other) = (Secret([9; 32]), Secret([10; 32]));
    let bound = sender.bind(&ticket, &receiver.public()).unwrap();
    assert_eq!(receiver.bind(&ticket, &sender.public()), Ok(bound.clone()));
    assert_ne!(bound, ticket);
    assert_ne!(thief.bind(&ticket, &receiver.public()), Ok(bound.clone()));
    assert_ne!(thief.bind(&ticket, &sender.public()), Ok(bound.clone()));
    assert_ne!(sender.bind(&other, &receiver.public()), Ok(bound));
}

/// RFC 7748, section 6.1.
#[test]
fn public_keys_are_those_of_x25519() {
    let hex = |text: &str| -> [u8; 32] {
        std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
    };
    let alice = EndKey::new(hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"));
    let public = hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    assert_eq!(alice.public().bytes(), public);
}

#[test]
fn a_key_that_binds_to_nobody_is_refused() {
    let zero = PublicEnd::try_from(&[0; 32][..]).unwrap();
    assert_eq!(EndKey::new([1; 32]).bind(&Secret([9; 32]), &zero), Err(NobodysKey));
    assert!(PublicEnd::try_from(&[1; 31][..]).is_err());
}
