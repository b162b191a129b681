//! The bodies of loops, choices and reductions.

use crate::error::{Fault, ensure};
use crate::func::{Block, Func, Value};
use crate::print::list;
use crate::types::Type;

/// What a region is given, apart from its body.
#[derive(Debug)]
pub(crate) struct RegionShape<'a> {
    pub(crate) captures: bool,
    pub(crate) args: &'a [Type],
    pub(crate) names: Option<&'a [(String, Type)]>,
    pub(crate) terminator: &'static str,
}

/// A closed region: its printed operations, with what it takes and yields.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) text: String,
    pub(crate) args: Vec<(String, Type)>,
    indent: String,
    yields: Result<Vec<Type>, Fault>,
}

impl Region {
    /// The types that the region yields, or why what it yields cannot be.
    pub(crate) fn yields(&self) -> Result<&[Type], Fault> {
        match &self.yields {
            Ok(types) => Ok(types),
            Err(fault) => Err(Fault { class: fault.class, message: fault.message.clone() }),
        }
    }

    /// The region yields exactly `expected`.
    pub(crate) fn must_yield(&self, what: &str, expected: &[Type]) -> Result<(), Fault> {
        let got = self.yields()?;
        ensure!(got == expected, Yield, "{what} yields ({}), not ({})", list(got), list(expected));
        Ok(())
    }

    /// `%1: tensor<f32>, %2: tensor<f32>`.
    pub(crate) fn arg_list(&self) -> String {
        self.args.iter().map(|(name, ty)| format!("{name}: {ty}")).collect::<Vec<_>>().join(", ")
    }

    /// `{ ... }` without a block label.
    pub(crate) fn braces(&self) -> String {
        format!("{{\n{}{}}}", self.text, self.indent)
    }

    /// `{ ^bb0(...): ... }`.
    pub(crate) fn labelled(&self) -> String {
        format!("{{\n{}^bb0({}):\n{}{}}}", self.indent, self.arg_list(), self.text, self.indent)
    }
}

impl Func {
    /// Build a region that takes `args` and ends with `terminator`. A region with `names` reuses those of another.
    pub(crate) fn region(
        &self,
        shape: RegionShape<'_>,
        body: impl FnOnce(&Func, &[Value]) -> Vec<Value>,
    ) -> Region {
        let RegionShape { captures, args, names, terminator } = shape;
        let (indent, values, args) = {
            let mut state = self.state.borrow_mut();
            let indent = " ".repeat((state.blocks.len() + 1) * 2);
            let id = state.next_block;
            state.next_block += 1;
            state.blocks.push(Block { id, captures, text: String::new() });
            let mut values = Vec::new();
            let mut named = Vec::new();
            for (at, ty) in args.iter().enumerate() {
                let fresh = || format!("%{}", state.number());
                let name = names.and_then(|names| names.get(at)).map_or_else(fresh, |(name, _)| name.clone());
                values.push(state.new_slot(name.clone(), ty.clone()));
                named.push((name, ty.clone()));
            }
            (indent, values, named)
        };
        let yielded = body(self, &values);
        let looked_up = self.look_up(&yielded);
        if let Ok(found) = &looked_up {
            let (names, types): (Vec<_>, Vec<_>) = found.iter().cloned().unzip();
            let types = if types.is_empty() { String::new() } else { format!(" : {}", list(&types)) };
            self.line(&format!("{terminator} {}{types}", list(&names)));
        }
        let text = self.state.borrow_mut().blocks.pop().map(|block| block.text).unwrap_or_default();
        let yields = looked_up.map(|found| found.into_iter().map(|(_, ty)| ty).collect());
        Region { text, args, indent, yields }
    }

    /// A region of a reduction or the like: it sees only its own arguments.
    pub(crate) fn closed_region(
        &self,
        args: &[Type],
        body: impl FnOnce(&Func, &[Value]) -> Vec<Value>,
    ) -> Region {
        self.region(RegionShape { captures: false, args, names: None, terminator: "stablehlo.return" }, body)
    }

    /// A region of control flow: it sees what is around it.
    pub(crate) fn open_region(
        &self,
        args: &[Type],
        names: Option<&[(String, Type)]>,
        body: impl FnOnce(&Func, &[Value]) -> Vec<Value>,
    ) -> Region {
        self.region(RegionShape { captures: true, args, names, terminator: "stablehlo.return" }, body)
    }
}
