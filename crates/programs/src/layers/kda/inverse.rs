use stablehlo::{DType, Func, Value};

/// Inverse of `I + n` for the strictly lower triangular `n [tiles, heads, rows, rows]`.
///
/// Blocks of `block` rows are inverted by forward substitution; neighbours are then joined by
/// `[[A, 0], [C, B]]^-1 = [[A', 0], [-B' C A', B']]` until one block is left. `rows` is `block` times a power of 2. A
/// series in powers of `n` would be shorter and loses digits where keys are alike and decay is slow.
pub(crate) fn unit_lower_inverse(f: &Func, n: Value, block: i64) -> Value {
    let dims = f.dims(n);
    let (lead, rows) = ([dims[0], dims[1]], dims[2]);
    let mut size = block.min(rows);
    let mut inverse = substitute(f, diagonal(f, n, size, 0));
    while size < rows {
        let count = rows / size;
        let pairs = f.reshape(inverse, &[lead[0], lead[1], count / 2, 2, size, size]);
        let half = |which| {
            let part = f.slice_axis(pairs, 3, which, which + 1);
            f.reshape(part, &[lead[0], lead[1], count / 2, size, size])
        };
        let (upper, lower) = (half(0), half(1));
        let below = diagonal(f, n, size, size);
        let joined = f.neg(f.matmul(f.matmul(lower, below), upper));
        let top = f.concatenate(&[upper, f.splat_like(upper, 0.0)], 4);
        let bottom = f.concatenate(&[joined, lower], 4);
        inverse = f.concatenate(&[top, bottom], 3);
        size *= 2;
    }
    f.reshape(inverse, &dims)
}

/// The blocks of `size` rows that begin `below` rows under the diagonal, one each `size + below` rows:
/// `[tiles, heads, count, size, size]`.
fn diagonal(f: &Func, n: Value, size: i64, below: i64) -> Value {
    let dims = f.dims(n);
    let stride = size + below;
    let blocks: Vec<Value> = (0..dims[2] / stride)
        .map(|at| {
            let rows = f.slice_axis(n, 2, at * stride + below, at * stride + below + size);
            let part = f.slice_axis(rows, 3, at * stride, at * stride + size);
            f.reshape(part, &[dims[0], dims[1], 1, size, size])
        })
        .collect();
    f.concatenate(&blocks, 2)
}

/// Inverse of `I + n` for single blocks `[tiles, heads, count, size, size]`, row by row for all of them at once.
fn substitute(f: &Func, n: Value) -> Value {
    let dims = f.dims(n);
    let (size, all) = (dims[3], dims[0] * dims[1] * dims[2]);
    // The many blocks go last: a row of one block is too short to fill vector registers.
    let n = f.transpose(f.reshape(n, &[all, size, size]), &[1, 2, 0]);
    let square = DType::S32.tensor([size, size]);
    let identity = f.convert(f.eq(f.iota(square.clone(), 0), f.iota(square, 1)), DType::F32);
    let identity = f.broadcast_in_dim(identity, &[size, size, all], &[0, 1]);
    let solved = f.repeat(size as i32, &[identity], |f, row, carried| {
        let coefficients = f.dynamic_index(n, 0, row);
        let known = carried[0];
        let terms = f.mul(known, f.broadcast_like(coefficients, known, &[0, 2]));
        let solution = f.sub(f.dynamic_index(known, 0, row), f.sum(terms, &[0]));
        vec![f.dynamic_update_index(known, solution, 0, row)]
    });
    f.reshape(f.transpose(solved[0], &[2, 0, 1]), &dims)
}
