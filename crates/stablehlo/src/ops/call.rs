//! Calls of functions, named composites and backend code.

use crate::emit::{Built, Operands};
use crate::error::{Class, Fault, ensure};
use crate::func::{Func, Value};
use crate::op::Op;
use crate::print::{list, quote, symbol};
use crate::types::Type;

/// What a custom call tells the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BackendConfig {
    #[default]
    None,
    /// Bytes as they are; non-ASCII ones are escaped.
    Text(String),
    /// An MLIR dictionary such as `{k = 1 : i64}`, for the typed interface (API version 4).
    Dictionary(String),
}

/// A call of code that the backend knows by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomCall {
    pub target: String,
    pub config: BackendConfig,
    /// 1 and 2 take text, 4 a dictionary.
    pub api_version: u32,
    pub has_side_effect: bool,
    /// Minor-to-major dimension order per operand and per result; the default order where empty.
    pub operand_layouts: Vec<Vec<usize>>,
    pub result_layouts: Vec<Vec<usize>>,
    /// Pairs of result and operand that share a buffer.
    pub aliases: Vec<(usize, usize)>,
    /// Further attributes, each as MLIR text `name = value`.
    pub attributes: Vec<String>,
}

impl CustomCall {
    /// A pure call with a text configuration.
    pub fn new(target: &str) -> Self {
        CustomCall {
            target: target.to_owned(),
            config: BackendConfig::None,
            api_version: 2,
            has_side_effect: false,
            operand_layouts: Vec::new(),
            result_layouts: Vec::new(),
            aliases: Vec::new(),
            attributes: Vec::new(),
        }
    }

    fn attributes(&self, operands: &Operands, results: &[Type]) -> Result<Vec<String>, Fault> {
        let mut attrs = vec![format!("api_version = {} : i32", self.api_version)];
        match &self.config {
            BackendConfig::None => {}
            BackendConfig::Text(text) => attrs.push(format!("backend_config = {}", quote(text))),
            BackendConfig::Dictionary(text) => {
                ensure!(self.api_version == 4, Attribute, "a dictionary needs API version 4");
                attrs.push(format!("backend_config = {text}"));
            }
        }
        if self.has_side_effect {
            attrs.push("has_side_effect = true".to_owned());
        }
        let given = (self.operand_layouts.is_empty(), self.result_layouts.is_empty());
        ensure!(
            given.0 == given.1 || results.is_empty(),
            Attribute,
            "give layouts for operands and results, or none"
        );
        for (what, layouts, types) in [
            ("operand_layouts", &self.operand_layouts, operands.types.as_slice()),
            ("result_layouts", &self.result_layouts, results),
        ] {
            if !layouts.is_empty() {
                attrs.push(format!("{what} = [{}]", layout_list(what, layouts, types)?));
            }
        }
        let mut aliases = Vec::new();
        for &(result, operand) in &self.aliases {
            let known = operands.types.get(operand).zip(results.get(result));
            ensure!(
                known.is_some_and(|(from, to)| from == to),
                Attribute,
                "result {result} cannot alias operand {operand}"
            );
            let tuple = if results.len() == 1 { String::new() } else { result.to_string() };
            aliases.push(format!(
                "#stablehlo.output_operand_alias<output_tuple_indices = [{tuple}], operand_index = {operand}, \
                 operand_tuple_indices = []>"
            ));
        }
        if !aliases.is_empty() {
            attrs.push(format!("output_operand_aliases = [{}]", list(&aliases)));
        }
        attrs.extend(self.attributes.iter().cloned());
        Ok(attrs)
    }
}

fn layout_list(what: &str, layouts: &[Vec<usize>], types: &[Type]) -> Result<String, Fault> {
    ensure!(
        layouts.len() == types.len(),
        Attribute,
        "{} {what} are given, not {}",
        layouts.len(),
        types.len()
    );
    let mut texts = Vec::new();
    for (layout, ty) in layouts.iter().zip(types) {
        let mut sorted = layout.clone();
        sorted.sort_unstable();
        let sound = sorted.iter().copied().eq(0..ty.rank());
        ensure!(sound, Attribute, "layout {layout:?} is no order of the dimensions of {ty}");
        let dense = if layout.is_empty() { String::new() } else { format!("[{}]", list(layout)) };
        texts.push(format!("dense<{dense}> : tensor<{}xindex>", layout.len()));
    }
    Ok(list(&texts))
}

/// A call that a backend may replace by code of its own, knowing it by name; others inline the decomposition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composite {
    pub name: String,
    /// Attributes for the backend, each as MLIR text `name = value`.
    pub attributes: Vec<String>,
    pub version: u32,
}

impl Func {
    /// Call a private function of this module, which must have its results already.
    #[track_caller]
    pub fn call(&self, callee: &Func, args: &[Value]) -> Vec<Value> {
        let results = self.results_of(callee);
        let fallback = results.as_ref().map(Clone::clone).unwrap_or_default();
        self.many(Op::Call, args, &fallback, |operands| {
            let results = results?;
            check_args(callee, &operands)?;
            let name = &callee.state.borrow().name;
            let signature = operands.signature(&results);
            Ok(Built::pretty(format!(" @{name}({}) : {signature}", operands.names()), results))
        })
    }

    /// Call a private function of this module under a name that a backend may know.
    #[track_caller]
    pub fn composite(&self, composite: &Composite, decomposition: &Func, args: &[Value]) -> Vec<Value> {
        let results = self.results_of(decomposition);
        let fallback = results.as_ref().map(Clone::clone).unwrap_or_default();
        self.many(Op::Composite, args, &fallback, |operands| {
            let results = results?;
            check_args(decomposition, &operands)?;
            let mut attrs = vec![format!("decomposition = @{}", decomposition.state.borrow().name)];
            if !composite.attributes.is_empty() {
                attrs.push(format!("composite_attributes = {{{}}}", list(&composite.attributes)));
            }
            attrs.push(format!("version = {} : i32", composite.version));
            let (name, names, signature) =
                (quote(&composite.name), operands.names(), operands.signature(&results));
            Ok(Built::pretty(format!(" {name} {names} {{{}}} : {signature}", list(&attrs)), results))
        })
    }

    fn results_of(&self, callee: &Func) -> Result<Vec<Type>, Fault> {
        let fault = |message| Fault { class: Class::Signature, message };
        let same_module = std::rc::Rc::ptr_eq(&self.module, &callee.module);
        if !same_module || callee.state.borrow().is_main() {
            return Err(fault("only private functions of the same module can be called".to_owned()));
        }
        let callee = callee.state.borrow();
        let outputs =
            callee.outputs.as_ref().ok_or_else(|| fault(format!("{} has no ret yet", callee.name)))?;
        Ok(outputs.iter().map(|output| output.ty.clone()).collect())
    }

    /// Call code of the backend. Nothing is known of it, so the results' types are taken on trust.
    #[track_caller]
    pub fn custom_call(&self, call: &CustomCall, operands: &[Value], results: &[Type]) -> Vec<Value> {
        self.many(Op::CustomCall, operands, results, |operands| {
            let attrs = call.attributes(&operands, results)?;
            let signature = operands.signature(results);
            let target = symbol(&call.target);
            let body = format!(" {target}({}) {{{}}} : {signature}", operands.names(), list(&attrs));
            Ok(Built::pretty(body, results.to_vec()))
        })
    }
}

fn check_args(callee: &Func, operands: &Operands) -> Result<(), Fault> {
    let callee = callee.state.borrow();
    let wanted: Vec<Type> = callee.args.iter().map(|arg| arg.ty.clone()).collect();
    ensure!(operands.types == wanted, Signature, "{} takes ({})", callee.name, list(&wanted));
    Ok(())
}
