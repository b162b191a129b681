use super::Source;

/// One weight of one layer, before stacking and encoding.
pub(super) struct Part {
    pub(super) role: &'static str,
    pub(super) dims: Vec<usize>,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// Few values that are added, multiplied by channel or compared: kept in f32.
    Vector(Source),
    /// A table whose rows are looked up, or the output matrix: never less than 16 bits.
    Table(Source),
    /// A matrix, or a stack of matrices.
    Matrix(Source),
    /// Matrices that read the same input, by name and rows; one matrix where the programs' mesh lets them be joined.
    Rows(Vec<(&'static str, usize, Source)>),
    /// The matrices of routed experts.
    Experts(Source),
}

impl Part {
    pub(super) fn vector(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Vector(source) }
    }

    pub(super) fn table(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Table(source) }
    }

    pub(super) fn matrix(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Matrix(source) }
    }

    pub(super) fn experts(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Experts(source) }
    }

    /// Matrices `[rows, width]` that read the same input.
    pub(super) fn rows(role: &'static str, width: usize, rows: Vec<(&'static str, usize, Source)>) -> Self {
        let all = rows.iter().map(|(_, rows, _)| rows).sum();
        Self { role, dims: vec![all, width], kind: Kind::Rows(rows) }
    }

    /// The same weight of several layers as one, laid end to end. `None` when there is no layer.
    pub(super) fn stacked(column: Vec<Self>) -> Option<Self> {
        let mut layers = column.into_iter();
        let mut first = layers.next()?;
        for layer in layers {
            match (&mut first.kind, layer.kind) {
                (Kind::Rows(all), Kind::Rows(more)) => {
                    for ((_, _, source), (_, _, next)) in all.iter_mut().zip(more) {
                        source.append(next);
                    }
                }
                (
                    Kind::Vector(all) | Kind::Table(all) | Kind::Matrix(all) | Kind::Experts(all),
                    Kind::Vector(next) | Kind::Table(next) | Kind::Matrix(next) | Kind::Experts(next),
                ) => all.append(next),
                _ => return None,
            }
        }
        Some(first)
    }
}

/// A tensor of one name.
pub(super) fn tensor(name: &str, dims: &[usize]) -> Source {
    Source::tensor([name.to_owned()], dims)
}
