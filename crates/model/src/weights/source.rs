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
    /// Laid end to end: a join along the leading axis, or a stack of equal shapes where the weight declares one more.
    Join(Vec<Source>),
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
    /// First value, counted in row-major order.
    pub start: usize,
    /// How many values.
    pub len: usize,
}

impl Source {
    /// A tensor that goes by any of `names`.
    #[must_use]
    pub fn tensor(names: impl IntoIterator<Item = String>, dims: &[usize]) -> Self {
        Self::Tensor { names: names.into_iter().collect(), dims: dims.to_vec() }
    }

    /// Number of values of the array this makes.
    #[must_use]
    pub fn elements(&self) -> usize {
        match self {
            Self::Tensor { dims, .. } => dims.iter().product(),
            Self::Rows { rows, .. } => rows * self.row_elements(),
            Self::Join(parts) | Self::Columns { parts, .. } => parts.iter().map(Self::elements).sum(),
            Self::Either(options) => options.first().map_or(0, Self::elements),
        }
    }

    /// Values in one row of the leading axis.
    fn row_elements(&self) -> usize {
        match self {
            Self::Tensor { dims, .. } => dims.iter().skip(1).product(),
            Self::Rows { of, .. } => of.row_elements(),
            Self::Join(parts) | Self::Either(parts) => parts.first().map_or(0, Self::row_elements),
            Self::Columns { parts, rows } => parts.iter().map(Self::elements).sum::<usize>() / rows.max(&1),
        }
    }

    /// The first tensor that is absent, or `None` when all are there.
    fn absent(&self, exists: &dyn Fn(&str) -> bool) -> Option<&str> {
        match self {
            Self::Tensor { names, .. } if names.iter().any(|name| exists(name)) => None,
            Self::Tensor { names, .. } => Some(names.first().map_or("", String::as_str)),
            Self::Rows { of, .. } => of.absent(exists),
            Self::Join(parts) | Self::Columns { parts, .. } => {
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
            Self::Tensor { names, dims } => {
                if let Some(tensor) = names.iter().find(|name| exists(name)) {
                    visit(Piece { tensor, dims, start, len });
                }
            }
            Self::Rows { of, start: first, .. } => {
                of.visit(first * of.row_elements() + start, len, exists, visit);
            }
            Self::Join(parts) => {
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
