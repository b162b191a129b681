use std::thread;

use pjrt::{Code, CompileOptions, DType, Error, Fault};

use crate::setup::{ADD, SLOW, client, compile, device, identity, vector};

#[test]
fn a_program_computes_and_says_what_it_takes() {
    let add = compile(ADD);
    let outputs = add.execute(&[&vector(&[1f32, 2., 3., 4.]), &vector(&[10f32, 20., 30., 40.])]).unwrap();
    assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [11., 22., 33., 44.]);
    let signature = add.signature().unwrap();
    assert_eq!(
        signature.parameters.iter().map(|shape| shape.to_string()).collect::<Vec<_>>(),
        ["4xf32", "4xf32"]
    );
    assert_eq!((add.name(), add.num_outputs(), &*signature.donated), ("add", 1, &[false, false][..]));
    assert!(!add.fingerprint().unwrap().is_empty());
}

#[test]
fn many_threads_execute_at_once() {
    let add = compile(ADD);
    thread::scope(|scope| {
        for thread in 0..4 {
            let add = &add;
            scope.spawn(move || {
                for round in 0..200 {
                    let a = vector(&[thread as f32; 4]);
                    let b = vector(&[round as f32; 4]);
                    let sum = add.execute(&[&a, &b]).unwrap();
                    assert_eq!(sum[0].to_vec::<f32>().unwrap(), [(thread + round) as f32; 4]);
                }
            });
        }
    });
}

#[test]
fn an_output_is_an_argument_before_it_is_computed() {
    let (slow, twice) = (compile(SLOW), compile(&SLOW.replace("dense<40>", "dense<1>")));
    let start = identity();
    let first = slow.execute(&[&start]).unwrap();
    drop(start);
    let second = twice.execute(&[&first[0]]).unwrap();
    drop(first);
    assert_eq!(second[0].to_vec::<f32>().unwrap(), identity().to_vec::<f32>().unwrap());
}

#[test]
fn wrong_arguments_never_reach_the_plugin() {
    let add = compile(ADD);
    let four = vector(&[0f32; 4]);
    let rejected = |arguments: &[&pjrt::Buffer]| {
        let error = add.execute(arguments).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }), "{error:?}");
        assert_eq!((error.whose(), error.retry()), (Fault::Caller, false));
        error.to_string()
    };
    assert_eq!(rejected(&[&four]), "arguments: 1 given, add takes 2");
    assert_eq!(
        rejected(&[&four, &vector(&[0f32; 5])]),
        "argument 1 of add: it is 5xf32, the program takes 4xf32"
    );
    assert_eq!(
        rejected(&[&vector(&[0i32; 4]), &four]),
        "argument 0 of add: it is 4xi32, the program takes 4xf32"
    );
    let gone = vector(&[0f32; 4]);
    gone.delete().unwrap();
    assert_eq!(
        add.execute(&[&four, &gone]).unwrap_err().to_string(),
        "argument 1 of add: the buffer was donated or deleted"
    );
    let elsewhere = client().buffer_from_slice(&[0f32; 4], &[4], &client().devices()[1]).unwrap();
    assert!(rejected(&[&four, &elsewhere]).starts_with("argument 1 of add: it lies on "));
    assert!(add.execute(&[&four, &four]).is_ok(), "the executable is as good as before");
}

#[test]
fn a_program_that_is_none_is_an_error_with_the_reason() {
    let compile = |program: &str| client().compile(program, &CompileOptions::default()).unwrap_err();
    let error = compile(&ADD.replace("return %sum", "return %total"));
    assert!(error.to_string().contains("undeclared SSA value"), "{error}");
    assert_eq!((error.code(), error.whose()), (Code::InvalidArgument, Fault::Caller));
    compile("");
    compile(&ADD.replace("-> tensor<4xf32>", "-> tensor<5xf32>"));
}

#[test]
fn memory_is_planned_and_what_the_plugin_lacks_is_none() {
    let memory = compile(ADD).memory().unwrap();
    assert_eq!((memory.arguments, memory.outputs, memory.aliased), (32, 16, 0));
    if client().platform_name() == "cpu" {
        assert_eq!(device().memory_stats(), None);
        assert_eq!(compile(ADD).cost(), None);
    }
}

#[test]
fn a_program_runs_on_the_device_it_is_compiled_for() {
    let third = &client().devices()[2];
    let add = client().compile(ADD, &CompileOptions::on_device(third)).unwrap();
    let a = client().buffer_from_slice(&[1f32; 4], &[4], third).unwrap();
    let sum = add.execute(&[&a, &a]).unwrap();
    assert_eq!(sum[0].device().id(), third.id());
    assert_eq!((sum[0].to_vec::<f32>().unwrap(), sum[0].dtype()), (vec![2.; 4], DType::F32));
}
