use super::Source;

/// One weight of one layer, before stacking and encoding.
pub(super) struct Part {
    pub(super) role: &'static str,
    pub(super) dims: Vec<usize>,
    pub(super) kind: Kind,
    /// The axis that a mesh of several devices cuts; none where every device has the whole.
    pub(super) cut: Option<usize>,
}

/// One of several matrices that read the same input.
pub(super) struct Rows {
    pub(super) name: &'static str,
    pub(super) rows: usize,
    pub(super) source: Source,
    /// Whether a mesh cuts its rows.
    pub(super) is_cut: bool,
}

impl Rows {
    /// Rows that belong to heads or inner channels, of which every device of a mesh has some.
    pub(super) fn cut(name: &'static str, rows: usize, source: Source) -> Self {
        Self { name, rows, source, is_cut: true }
    }

    /// Rows that every device has.
    pub(super) fn whole(name: &'static str, rows: usize, source: Source) -> Self {
        Self { name, rows, source, is_cut: false }
    }
}

pub(super) enum Kind {
    /// Few values that are added, multiplied by channel or compared: kept in f32.
    Vector(Source),
    /// A table whose rows are looked up, or the output matrix: never less than 16 bits.
    Table(Source),
    /// A matrix, or a stack of matrices.
    Matrix(Source),
    /// Matrices that read the same input, by name and rows; one matrix where the programs' mesh lets them be joined.
    Rows(Vec<Rows>),
    /// The matrices of routed experts.
    Experts(Source),
}

impl Part {
    pub(super) fn vector(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Vector(source), cut: None }
    }

    pub(super) fn table(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Table(source), cut: None }
    }

    pub(super) fn matrix(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Matrix(source), cut: None }
    }

    pub(super) fn experts(role: &'static str, dims: &[usize], source: Source) -> Self {
        Self { role, dims: dims.to_vec(), kind: Kind::Experts(source), cut: None }
    }

    /// Matrices `[rows, width]` that read the same input.
    pub(super) fn rows(role: &'static str, width: usize, rows: Vec<Rows>) -> Self {
        let all = rows.iter().map(|each| each.rows).sum();
        Self { role, dims: vec![all, width], kind: Kind::Rows(rows), cut: None }
    }

    /// The same, cut along an axis where a mesh has several devices.
    pub(super) fn cut(mut self, axis: usize) -> Self {
        self.cut = Some(axis);
        self
    }

    /// The same weight of several layers as one, laid end to end. `None` when there is no layer.
    pub(super) fn stacked(column: Vec<Self>) -> Option<Self> {
        let mut layers = column.into_iter();
        let mut first = layers.next()?;
        for layer in layers {
            match (&mut first.kind, layer.kind) {
                (Kind::Rows(all), Kind::Rows(more)) => {
                    for (each, next) in all.iter_mut().zip(more) {
                        each.source.append(next.source);
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
