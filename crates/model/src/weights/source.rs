use crate::Error;

/// How an array is put together from tensors of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A whole tensor. `names` are the namings it goes by; `dims` its expected shape, where axes of length 1 may be
    /// present or absent.
    Tensor {
        /// Alternative names; a checkpoint holds one of them.
        names: Vec<String>,
        /// Expected axis lengths.
        dims: Vec<usize>,
        /// Whether the checkpoint's leading axis may be longer; what is beyond is not read.
        padded: bool,
    },
    /// Rows `start..start + rows` of the leading axis.
    Rows {
        /// What is cut.
        of: Box<Source>,
        /// First row.
        start: usize,
        /// How many.
        rows: usize,
    },
    /// Laid end to end along the leading axis.
    Join(Vec<Source>),
    /// Equal shapes laid end to end, one for each layer of a repeated group.
    Stack(Vec<Source>),
    /// Joined along the last axis of matrices of `rows` rows each.
    Columns {
        /// Matrices with equally many rows.
        parts: Vec<Source>,
        /// Rows of each of them and of the result.
        rows: usize,
    },
    /// The same array from differently named checkpoints: the first alternative whose tensors all exist.
    Either(Vec<Source>),
}

/// A run of consecutive values of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Name of the tensor in the checkpoint.
    pub tensor: &'a str,
    /// Shape it must have, up to axes of length 1.
    pub dims: &'a [usize],
    /// Whether its leading axis may be longer than that.
    pub padded: bool,
    /// First value, counted in row-major order.
    pub start: usize,
    /// How many values.
    pub len: usize,
}

impl Source {
    /// A tensor that goes by any of `names`.
    #[must_use]
    pub fn tensor(names: impl IntoIterator<Item = String>, dims: &[usize]) -> Self {
        Self::Tensor { names: names.into_iter().collect(), dims: dims.to_vec(), padded: false }
    }

    /// The first rows of a tensor whose leading axis may be longer.
    #[must_use]
    pub fn padded(names: impl IntoIterator<Item = String>, dims: &[usize]) -> Self {
        Self::Tensor { names: names.into_iter().collect(), dims: dims.to_vec(), padded: true }
    }

    /// Rows `start..start + rows` of this array's leading axis.
    #[must_use]
    pub fn rows(self, start: usize, rows: usize) -> Self {
        Self::Rows { of: Box::new(self), start, rows }
    }

    /// Lays another array behind this one.
    pub(super) fn append(&mut self, next: Self) {
        if let Self::Stack(layers) = self {
            layers.push(next);
        } else {
            let first = std::mem::replace(self, Self::Stack(Vec::new()));
            *self = Self::Stack(vec![first, next]);
        }
    }

    /// One layer of `rows` rows of what [`Source::append`] laid behind each other.
    pub(super) fn layer(&self, layer: usize) -> Self {
        match self {
            Self::Stack(layers) => layers.get(layer).unwrap_or(self).clone(),
            whole => whole.clone(),
        }
    }

    /// The same cut of the tensors in which a quantised checkpoint stores these values: `suffix` is appended to the
    /// names, and rows of `columns` values are `stored` long.
    pub(super) fn stored(&self, suffix: &str, columns: usize, stored: usize) -> Self {
        let each = |parts: &[Self]| parts.iter().map(|part| part.stored(suffix, columns, stored)).collect();
        match self {
            Self::Tensor { names, dims, padded } => {
                let mut dims = dims.clone();
                if let Some(last) = dims.last_mut().filter(|last| **last == columns) {
                    *last = stored;
                }
                let names = names.iter().map(|name| format!("{name}{suffix}")).collect();
                Self::Tensor { names, dims, padded: *padded }
            }
            Self::Rows { of, start, rows } => of.stored(suffix, columns, stored).rows(*start, *rows),
            Self::Join(parts) => Self::Join(each(parts)),
            Self::Stack(parts) => Self::Stack(each(parts)),
            Self::Columns { parts, rows } => Self::Columns { parts: each(parts), rows: *rows },
            Self::Either(options) => Self::Either(each(options)),
        }
    }

    /// Number of values of the array this makes.
    #[must_use]
    pub fn elements(&self) -> usize {
        match self {
            Self::Tensor { dims, .. } => dims.iter().product(),
            Self::Rows { rows, .. } => rows * self.row_elements(),
            Self::Join(parts) | Self::Stack(parts) | Self::Columns { parts, .. } => {
                parts.iter().map(Self::elements).sum()
            }
            Self::Either(options) => options.first().map_or(0, Self::elements),
        }
    }

    /// Values in one row of the leading axis.
    fn row_elements(&self) -> usize {
        match self {
            Self::Tensor { dims, .. } => dims.iter().skip(1).product(),
            Self::Rows { of, .. } => of.row_elements(),
            Self::Join(parts) | Self::Stack(parts) | Self::Either(parts) => {
                parts.first().map_or(0, Self::row_elements)
            }
            Self::Columns { parts, rows } => parts.iter().map(Self::elements).sum::<usize>() / rows.max(&1),
        }
    }

    /// The first tensor that is absent, or `None` when all are there.
    fn absent(&self, exists: &dyn Fn(&str) -> bool) -> Option<&str> {
        match self {
            Self::Tensor { names, .. } if names.iter().any(|name| exists(name)) => None,
            Self::Tensor { names, .. } => Some(names.first().map_or("", String::as_str)),
            Self::Rows { of, .. } => of.absent(exists),
            Self::Join(parts) | Self::Stack(parts) | Self::Columns { parts, .. } => {
                parts.iter().find_map(|part| part.absent(exists))
            }
            Self::Either(options) => {
                let mut absents = options.iter().map(|option| option.absent(exists));
                let first = absents.next()?;
                if first.is_none() || absents.any(|absent| absent.is_none()) { None } else { first }
            }
        }
    }

    pub(super) fn check(&self, weight: &str, exists: &dyn Fn(&str) -> bool) -> Result<(), Error> {
        match self.absent(exists) {
            None => Ok(()),
            Some(tensor) => {
                Err(Error::TensorMissing { weight: weight.to_owned(), tensor: tensor.to_owned() })
            }
        }
    }

    /// Visits the pieces of the values `start..start + len` of this array.
    pub(super) fn visit(
        &self,
        start: usize,
        len: usize,
        exists: &dyn Fn(&str) -> bool,
        visit: &mut dyn FnMut(Piece<'_>),
    ) {
        if len == 0 {
            return;
        }
        match self {
            Self::Tensor { names, dims, padded } => {
                if let Some(tensor) = names.iter().find(|name| exists(name)) {
                    visit(Piece { tensor, dims, padded: *padded, start, len });
                }
            }
            Self::Rows { of, start: first, .. } => {
                of.visit(first * of.row_elements() + start, len, exists, visit);
            }
            Self::Join(parts) | Self::Stack(parts) => {
                let runs = parts.iter().map(|part| (part, 0, part.elements()));
                cut(runs, start, len, &mut |part, at, n| part.visit(at, n, exists, visit));
            }
            Self::Columns { parts, rows } => {
                let row_of = |row: usize| {
                    parts.iter().map(move |part| {
                        let width = part.elements() / rows;
                        (part, row * width, width)
                    })
                };
                let row_len = self.row_elements();
                let first = start / row_len;
                let runs = (first..*rows).flat_map(row_of);
                cut(runs, start - first * row_len, len, &mut |part, at, n| part.visit(at, n, exists, visit));
            }
            Self::Either(options) => {
                if let Some(option) = options.iter().find(|option| option.absent(exists).is_none()) {
                    option.visit(start, len, exists, visit);
                }
            }
        }
    }
}

/// Walks runs of `(source, offset, length)` laid end to end and reports the parts inside `start..start + len`.
fn cut<'a>(
    runs: impl Iterator<Item = (&'a Source, usize, usize)>,
    start: usize,
    len: usize,
    report: &mut dyn FnMut(&'a Source, usize, usize),
) {
    let end = start + len;
    let mut position = 0;
    for (source, offset, length) in runs {
        if position >= end {
            break;
        }
        let from = start.max(position);
        let to = end.min(position + length);
        if from < to {
            report(source, offset + from - position, to - from);
        }
        position += length;
    }
}
