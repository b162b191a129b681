use stablehlo::{ArgAttrs, Channel, DType, Func, Mesh, Module, Reducer, Sharding, Value};

use crate::row::{Row, Spread, Tensor, tensor, vector};

const GROUPS: [[i64; 2]; 2] = [[0, 1], [2, 3]];

fn groups() -> Vec<Vec<i64>> {
    GROUPS.iter().map(|group| group.to_vec()).collect()
}

/// Device `d` holds `[d + 1, 10 (d + 1)]`.
fn part(device: i64) -> [f32; 2] {
    [(device + 1) as f32, 10.0 * (device + 1) as f32]
}

fn peers(device: i64) -> [i64; 2] {
    GROUPS[(device / 2) as usize]
}

fn total(device: i64) -> [f32; 2] {
    let [a, b] = peers(device).map(part);
    [a[0] + b[0], a[1] + b[1]]
}

fn on_replicas(name: &str, build: fn(&Func, Value) -> Value, want: fn(i64) -> Tensor) -> Row {
    Row {
        name: name.to_owned(),
        spread: Spread::Replicas,
        inputs: (0..4).map(|device| vec![vector(&part(device))]).collect(),
        build: Box::new(move |_, f, x| vec![build(f, x[0])]),
        want: (0..4).map(|device| vec![want(device)]).collect(),
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = vec![
        on_replicas(
            "all_reduce",
            |f, x| f.all_reduce(x, &Channel::Replicas(groups()), Reducer::Add),
            |device| vector(&total(device)),
        ),
        on_replicas(
            "all_gather",
            |f, x| f.all_gather(x, &Channel::Replicas(groups()), 0),
            |device| vector(&peers(device).map(part).concat()),
        ),
        on_replicas(
            "reduce_scatter",
            |f, x| f.reduce_scatter(x, &Channel::Replicas(groups()), 0, Reducer::Add),
            |device| vector(&[total(device)[(device % 2) as usize]]),
        ),
        on_replicas(
            "all_to_all",
            |f, x| f.all_to_all(x, &Channel::Replicas(groups()), 0, 0),
            |device| vector(&peers(device).map(|peer| part(peer)[(device % 2) as usize])),
        ),
        // A ring without the last link: device 0 receives nothing.
        on_replicas(
            "collective_permute",
            |f, x| f.collective_permute(x, &Channel::Replicas(vec![vec![0, 1], vec![1, 2], vec![2, 3]])),
            |device| vector(&if device == 0 { [0.0; 2] } else { part(device - 1) }),
        ),
    ];
    rows.extend(on_meshes());
    rows
}

fn on_mesh(name: &str, build: fn(&Func), inputs: Vec<Vec<Tensor>>, want: Vec<Vec<Tensor>>) -> Row {
    Row {
        name: name.to_owned(),
        spread: Spread::Mesh(Mesh::new("mesh", [("data", 2), ("model", 2)])),
        inputs,
        build: Box::new(move |_: &Module, f: &Func, _: &[Value]| {
            build(f);
            Vec::new()
        }),
        want,
    }
}

/// `x [4, 2]` times `w [2, 2]`: rows over `data`, the contracted dimension over `model`; once by the partitioner, once
/// by hand.
fn on_meshes() -> Vec<Row> {
    // x is 0..8; w is [[1, 2], [3, 4]]; devices are [data, model].
    let x = |device: usize| {
        let (row, column) = (device / 2 * 2, device % 2);
        let at = |row: usize| (row * 2 + column) as f32;
        tensor(&[at(row), at(row + 1)], &[2, 1])
    };
    let w = |device: usize| tensor(&[[1.0f32, 2.0], [3.0, 4.0]][device % 2], &[1, 2]);
    let inputs: Vec<Vec<Tensor>> = (0..4).map(|device| vec![x(device), w(device)]).collect();
    let product = |row: usize| {
        [(row * 2) as f32 + 3.0 * (row * 2 + 1) as f32, 2.0 * (row * 2) as f32 + 4.0 * (row * 2 + 1) as f32]
    };
    let want: Vec<Vec<Tensor>> = (0..4)
        .map(|device| {
            let row = device / 2 * 2;
            vec![tensor(&[product(row), product(row + 1)].concat(), &[2, 2])]
        })
        .collect();
    vec![
        on_mesh(
            "shardy",
            |f| {
                let (x, w) = operands(f);
                let y = f.with_sharding(f.matmul(x, w), &rows_over_data());
                f.ret_sharded(&[("y", y, Some(rows_over_data()))]);
            },
            inputs.clone(),
            want.clone(),
        ),
        on_mesh(
            "per_device",
            |f| {
                let (x, w) = operands(f);
                let y = f.per_device(
                    &[(x, both_split()), (w, Sharding::split("mesh", 2, 0, "model"))],
                    &[rows_over_data()],
                    |f, parts| {
                        let partial = f.matmul(parts[0], parts[1]);
                        let over_model = Channel::Devices { channel: 1, groups: groups() };
                        vec![f.all_reduce(partial, &over_model, Reducer::Add)]
                    },
                );
                f.ret_sharded(&[("y", y[0], Some(rows_over_data()))]);
            },
            inputs,
            want,
        ),
    ]
}

fn both_split() -> Sharding {
    Sharding::new("mesh", [&["data"][..], &["model"][..]])
}

fn rows_over_data() -> Sharding {
    Sharding::split("mesh", 2, 0, "data")
}

fn operands(f: &Func) -> (Value, Value) {
    let x = f.arg("x", DType::F32.tensor([4, 2]), ArgAttrs::new().sharding(both_split()));
    let w = f.arg(
        "w",
        DType::F32.tensor([2, 2]),
        ArgAttrs::new().sharding(Sharding::split("mesh", 2, 0, "model")),
    );
    (x, w)
}
