//! The protobuf wire format: as much as compile options and HLO modules need.

/// Writes fields of one message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn varint(mut self, field: u32, value: u64) -> Self {
        self.raw(u64::from(field) << 3);
        self.raw(value);
        self
    }

    pub(crate) fn flag(self, field: u32, value: bool) -> Self {
        if value { self.varint(field, 1) } else { self }
    }

    pub(crate) fn double(mut self, field: u32, value: f64) -> Self {
        self.raw(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.raw(u64::from(field) << 3 | 2);
        self.raw(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub(crate) fn message(self, field: u32, value: Self) -> Self {
        self.bytes(field, &value.0)
    }

    pub(crate) fn packed(self, field: u32, values: impl IntoIterator<Item = u64>) -> Self {
        let mut inner = Self::default();
        values.into_iter().for_each(|value| inner.raw(value));
        self.bytes(field, &inner.0)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// A field as it is met: its number and what it holds.
pub(crate) enum Field<'a> {
    Varint(u32, u64),
    Bytes(u32, &'a [u8]),
    /// A fixed-width number, which no message read here uses.
    Fixed,
}

/// Walks the fields of one message; yields `None` where the bytes are not one.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Reader<'a> {
    type Item = Option<Field<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Reader<'a> {
    fn field(&mut self) -> Option<Field<'a>> {
        let key = self.take_varint()?;
        let number = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            0 => Some(Field::Varint(number, self.take_varint()?)),
            1 => self.take(8).map(|_| Field::Fixed),
            2 => {
                let len = usize::try_from(self.take_varint()?).ok()?;
                Some(Field::Bytes(number, self.take(len)?))
            }
            5 => self.take(4).map(|_| Field::Fixed),
            _ => None,
        }
    }

    /// The next varint, also for walking a packed list.
    pub(crate) fn take_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

/// The sub-messages with one field number.
pub(crate) fn messages(bytes: &[u8], wanted: u32) -> impl Iterator<Item = &[u8]> {
    Reader(bytes).filter_map(move |field| match field {
        Some(Field::Bytes(number, value)) if number == wanted => Some(value),
        _ => None,
    })
}

/// The last value of a number field, zero where it is absent.
pub(crate) fn number(bytes: &[u8], wanted: u32) -> u64 {
    let values = Reader(bytes).filter_map(|field| match field {
        Some(Field::Varint(number, value)) if number == wanted => Some(value),
        _ => None,
    });
    values.last().unwrap_or(0)
}

/// The last value of a text field, empty where it is absent.
pub(crate) fn text(bytes: &[u8], wanted: u32) -> String {
    messages(bytes, wanted).last().map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}

/// The values of a repeated number field, packed or not; `None` where a packed list is cut.
pub(crate) fn numbers(bytes: &[u8], wanted: u32) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for field in Reader(bytes) {
        match field? {
            Field::Varint(number, value) if number == wanted => all.push(value),
            Field::Bytes(number, packed) if number == wanted => {
                let mut list = Reader(packed);
                while !list.0.is_empty() {
                    all.push(list.take_varint()?);
                }
            }
            _ => {}
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests;
