use stablehlo::{DType, Gather, Reducer, Scatter, Update};

use crate::row::{Row, Tensor, row, tensor, vector};

/// 0, 1, ..., 7 as four rows of two.
fn table() -> Tensor {
    tensor(&[0i32, 1, 2, 3, 4, 5, 6, 7], &[4, 2])
}

pub(crate) fn rows() -> Vec<Row> {
    let mut rows = gathers();
    rows.extend(scatters());
    rows.extend(sorts());
    rows
}

fn gathers() -> Vec<Row> {
    vec![
        // An index past the end takes the last row.
        row(
            "take_rows",
            &[table(), tensor(&[3i32, 0, 9, 1], &[2, 2])],
            |f, x| vec![f.take_rows(x[0], x[1])],
            &[tensor(&[6i32, 7, 0, 1, 6, 7, 2, 3], &[2, 2, 2])],
        ),
        row(
            "take_rows one",
            &[table(), tensor(&[2i32], &[])],
            |f, x| vec![f.take_rows(x[0], x[1])],
            &[vector(&[4i32, 5])],
        ),
        row(
            "take_at",
            &[table(), tensor(&[3i32, 0, 1, 1], &[2, 2])],
            |f, x| vec![f.take_at(x[0], x[1])],
            &[vector(&[6i32, 3])],
        ),
        // Per row its own column: batching dimensions pair the rows.
        row(
            "gather batched",
            &[table(), tensor(&[1i32, 0, 0, 1], &[4, 1])],
            |f, x| {
                let how = Gather {
                    collapsed_slice_dims: vec![1],
                    operand_batching_dims: vec![0],
                    start_indices_batching_dims: vec![0],
                    start_index_map: vec![1],
                    index_vector_dim: 1,
                    slice_sizes: vec![1, 1],
                    ..Gather::default()
                };
                vec![f.gather(x[0], x[1], &how)]
            },
            &[vector(&[1i32, 2, 4, 7])],
        ),
    ]
}

fn scatters() -> Vec<Row> {
    let updates = tensor(&[10i32, 11, 20, 21, 30, 31], &[3, 2]);
    vec![
        // Row 4 does not exist: that update is dropped.
        row(
            "scatter_rows",
            &[table(), vector(&[2i32, 4, 0]), updates.clone()],
            |f, x| vec![f.scatter_rows(x[0], x[1], x[2], Update::Replace)],
            &[tensor(&[30i32, 31, 2, 3, 10, 11, 6, 7], &[4, 2])],
        ),
        row(
            "scatter_rows add",
            &[table(), vector(&[1i32, 1, 0]), updates],
            |f, x| vec![f.scatter_rows(x[0], x[1], x[2], Update::Combine(Reducer::Add))],
            &[tensor(&[30i32, 32, 32, 35, 4, 5, 6, 7], &[4, 2])],
        ),
        row(
            "scatter_at",
            &[table(), tensor(&[3i32, 1, 0, 0], &[2, 2]), vector(&[50i32, 60])],
            |f, x| vec![f.scatter_at(x[0], x[1], x[2], Update::Combine(Reducer::Max))],
            &[tensor(&[60i32, 1, 2, 3, 4, 5, 6, 50], &[4, 2])],
        ),
        row(
            "scatter windows",
            &[vector(&[0i32, 0, 0, 0, 0]), tensor(&[1i32, 3], &[2, 1]), tensor(&[1i32, 2, 3, 4], &[2, 2])],
            |f, x| {
                let how = Scatter {
                    update_window_dims: vec![1],
                    scatter_dims_to_operand_dims: vec![0],
                    index_vector_dim: 1,
                    unique_indices: true,
                    indices_are_sorted: true,
                    ..Scatter::default()
                };
                vec![f.scatter(x[0], x[1], x[2], &how, Update::Replace)]
            },
            &[vector(&[0i32, 1, 2, 3, 4])],
        ),
    ]
}

fn sorts() -> Vec<Row> {
    let keys = tensor(&[3.0f32, 1.0, 3.0, -2.0], &[1, 4]);
    vec![
        row(
            "sort with places",
            std::slice::from_ref(&keys),
            |f, x| {
                let places = f.iota(DType::S32.tensor([1, 4]), 1);
                f.sort(&[x[0], places], 1, true, |f, left, right| f.gt(left[0], right[0]))
            },
            &[tensor(&[3.0f32, 3.0, 1.0, -2.0], &[1, 4]), tensor(&[0i32, 2, 1, 3], &[1, 4])],
        ),
        row(
            "top_k",
            &[keys],
            |f, x| {
                let (values, places) = f.top_k(x[0], 3);
                vec![values, places]
            },
            &[tensor(&[3.0f32, 3.0, 1.0], &[1, 3]), tensor(&[0i32, 2, 1], &[1, 3])],
        ),
    ]
}
