use crate::setup::{ADD, client, compile};

#[test]
fn a_program_computes() {
    let device = &client().devices()[0];
    let add = compile(ADD);
    let a = client()
        .buffer_from_slice(&[1f32, 2., 3., 4.], &[4], device)
        .unwrap();
    let b = client()
        .buffer_from_slice(&[10f32, 20., 30., 40.], &[4], device)
        .unwrap();
    let outputs = add.execute(&[&a, &b]).unwrap();
    println!("{add:?} {:?} {:?}", add.signature(), outputs);
    assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [11., 22., 33., 44.]);
}
