use pjrt::{CompileOptions, Error};

use crate::setup::{ADD, client};

/// `[8, 4] x [4, 2]`, contracted over an axis that is split over four devices: every device needs an all-reduce.
const SPLIT: &str = r#"module @split {
  sdy.mesh @mesh = <["x"=4]>
  func.func public @main(
      %a: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
      %b: tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<8x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
    return %r : tensor<8x2xf32>
  }
}"#;

#[tokio::test]
async fn one_program_runs_on_four_devices() {
    let devices = client().devices();
    let split = client().compile(SPLIT, &CompileOptions::sharded_over(devices)).unwrap();
    assert_eq!(split.devices().map(|device| device.id()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let parameters = &split.signature().unwrap().parameters;
    assert_eq!([parameters[0].to_string(), parameters[1].to_string()], ["8x1xf32", "1x2xf32"]);
    // a[i, k] = i, b[k, j] = 10 k + j: the product is i * (60 + 4 j).
    let column: Vec<f32> = (0..8).map(|row| row as f32).collect();
    let shards: Vec<_> = (0..4u8)
        .map(|k| {
            let row = [10. * f32::from(k), 10. * f32::from(k) + 1.];
            let device = &devices[usize::from(k)];
            [
                client().buffer_from_slice(&column, &[8, 1], device).unwrap(),
                client().buffer_from_slice(&row, &[1, 2], device).unwrap(),
            ]
        })
        .collect();
    let arguments: Vec<Vec<_>> = shards.iter().map(|shard| shard.iter().collect()).collect();
    let expected: Vec<f32> = (0..8).flat_map(|i| [i as f32 * 60., i as f32 * 64.]).collect();
    for _ in 0..20 {
        let executions = split.execute_sharded_with(&arguments, &Default::default()).unwrap();
        assert_eq!(executions.len(), 4);
        for (execution, device) in executions.into_iter().zip(devices) {
            execution.done.await.unwrap();
            assert_eq!(execution.outputs[0].device().id(), device.id());
            assert_eq!(execution.outputs[0].to_vec::<f32>().unwrap(), expected);
        }
    }
    let short = split.execute_sharded(&arguments[..3]).unwrap_err();
    assert!(matches!(short, Error::Argument { .. }), "{short}");
    assert!(split.execute(&arguments[0]).is_err());
}

#[test]
fn devices_that_do_not_exist_are_rejected() {
    let compile = |options: CompileOptions| client().compile(ADD, &options).unwrap_err().to_string();
    let too_many = CompileOptions { num_partitions: 5, ..Default::default() };
    assert_eq!(compile(too_many), "num_replicas x num_partitions: 5 devices are asked for, the client has 4");
    let unknown = CompileOptions { device_assignment: Some(vec![vec![7]]), ..Default::default() };
    assert_eq!(compile(unknown), "device_assignment: the client has no device 7");
    let twice =
        CompileOptions { num_partitions: 2, device_assignment: Some(vec![vec![1, 1]]), ..Default::default() };
    assert_eq!(compile(twice), "device_assignment: a device is named twice");
}
