//! The builder of one function: its arguments, values, scopes and results.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use crate::arg::{Arg, ArgAttrs, Output};
use crate::error::{Class, Error, Fault, ensure};
use crate::module::ModuleState;
use crate::sharding::Sharding;
use crate::types::{DType, Type};

/// A tensor in the program under construction. A handle: its type is asked of the [`Func`] that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    pub(crate) func: u32,
    pub(crate) index: u32,
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) ty: Type,
    pub(crate) block: u32,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) id: u32,
    /// Whether the values of enclosing blocks are visible here.
    pub(crate) captures: bool,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct FuncState {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) location: &'static Location<'static>,
    pub(crate) args: Vec<Arg>,
    pub(crate) outputs: Option<Vec<Output>>,
    pub(crate) slots: Vec<Slot>,
    /// The function's body and the regions open inside it, innermost last.
    pub(crate) blocks: Vec<Block>,
    pub(crate) next_block: u32,
    pub(crate) next_number: u32,
}

impl FuncState {
    pub(crate) fn new(id: u32, name: &str, location: &'static Location<'static>) -> Self {
        FuncState {
            id,
            name: name.to_owned(),
            location,
            args: Vec::new(),
            outputs: None,
            slots: Vec::new(),
            blocks: vec![Block { id: 0, captures: false, text: String::new() }],
            next_block: 1,
            next_number: 0,
        }
    }

    pub(crate) fn is_main(&self) -> bool {
        self.id == 0
    }

    /// Why `value` cannot be used at this point, if it cannot.
    fn check_visible(&self, value: Value) -> Result<&Slot, Fault> {
        let slot = self.slots.get(value.index as usize).filter(|_| value.func == self.id);
        let Some(slot) = slot else {
            return Err(Fault {
                class: Class::Visibility,
                message: format!("a value of another function is used in {}", self.name),
            });
        };
        for block in self.blocks.iter().rev() {
            if block.id == slot.block {
                return Ok(slot);
            }
            let captured = self.blocks.iter().any(|outer| outer.id == slot.block);
            ensure!(
                block.captures || !captured,
                Visibility,
                "{} of type {} is made outside this region, which cannot capture",
                slot.name,
                slot.ty
            );
        }
        Err(Fault {
            class: Class::Visibility,
            message: format!("{} of type {} is made inside a region that has ended", slot.name, slot.ty),
        })
    }

    pub(crate) fn new_slot(&mut self, name: String, ty: Type) -> Value {
        let block = self.blocks.last().map_or(0, |block| block.id);
        let index = self.slots.len() as u32;
        self.slots.push(Slot { name, ty, block });
        Value { func: self.id, index }
    }

    pub(crate) fn number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }
}

/// Builds one function. Cloning it makes another handle to the same function.
#[derive(Clone)]
pub struct Func {
    pub(crate) state: Rc<RefCell<FuncState>>,
    pub(crate) module: Rc<RefCell<ModuleState>>,
}

impl fmt::Debug for Func {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Func").field("name", &self.state.borrow().name).finish_non_exhaustive()
    }
}

/// Keeps a section of the program named; see [`Func::scope`].
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub struct Scope {
    module: Rc<RefCell<ModuleState>>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.module.borrow_mut().scopes.pop();
    }
}

impl Func {
    /// Add an argument. Its name becomes its name in the text, so it must be a letter or `_`, then letters, digits and
    /// any of `_.$-`, and must be used once.
    #[track_caller]
    pub fn arg(&self, name: &str, ty: Type, attrs: ArgAttrs) -> Value {
        let location = Location::caller();
        let checked = self.check_arg(name, &ty, &attrs);
        self.note("arg", location, checked, &[]);
        let mut state = self.state.borrow_mut();
        let ArgAttrs { sharding, donation } = attrs;
        state.args.push(Arg { name: name.to_owned(), ty: ty.clone(), sharding, donation, location });
        state.new_slot(format!("%{name}"), ty)
    }

    /// Add an argument that is kept and not sharded.
    #[track_caller]
    pub fn input(&self, name: &str, ty: Type) -> Value {
        self.arg(name, ty, ArgAttrs::new())
    }

    fn check_arg(&self, name: &str, ty: &Type, attrs: &ArgAttrs) -> Result<(), Fault> {
        let state = self.state.borrow();
        ensure!(is_identifier(name), Signature, "{name:?} cannot name an argument");
        ensure!(
            state.args.iter().all(|arg| arg.name != name),
            Signature,
            "argument {name:?} is declared twice"
        );
        ensure!(state.blocks.len() == 1, Signature, "argument {name:?} is declared inside a region");
        ensure!(state.outputs.is_none(), Signature, "argument {name:?} is declared after ret");
        check_type(ty)?;
        if let Some(sharding) = &attrs.sharding {
            sharding.part(&self.module.borrow().meshes, ty)?;
        }
        Ok(())
    }

    /// End the function with named results.
    #[track_caller]
    pub fn ret(&self, outputs: &[(&str, Value)]) {
        let outputs: Vec<_> = outputs.iter().map(|&(name, value)| (name, value, None)).collect();
        self.ret_sharded(&outputs);
    }

    /// End the function with named results, each spread over a mesh as said.
    #[track_caller]
    pub fn ret_sharded(&self, outputs: &[(&str, Value, Option<Sharding>)]) {
        let location = Location::caller();
        let checked = self.check_outputs(outputs);
        if let Some(outputs) = self.note("ret", location, checked, &[]) {
            self.state.borrow_mut().outputs = Some(outputs);
        }
    }

    fn check_outputs(&self, outputs: &[(&str, Value, Option<Sharding>)]) -> Result<Vec<Output>, Fault> {
        let state = self.state.borrow();
        ensure!(state.outputs.is_none(), Signature, "{} returns twice", state.name);
        ensure!(state.blocks.len() == 1, Signature, "{} returns from inside a region", state.name);
        let mut checked: Vec<Output> = Vec::new();
        for (name, value, sharding) in outputs {
            ensure!(
                checked.iter().all(|other| other.name != *name),
                Signature,
                "result {name:?} is named twice"
            );
            let slot = state.check_visible(*value)?;
            if let Some(sharding) = sharding {
                sharding.part(&self.module.borrow().meshes, &slot.ty)?;
            }
            let (name, ty) = ((*name).to_owned(), slot.ty.clone());
            checked.push(Output { name, ty, sharding: sharding.clone(), value: *value });
        }
        Ok(checked)
    }

    /// Name what is built until the returned guard is dropped. Scopes nest into a path, which is printed as a comment,
    /// attached to the operations as their location (profilers show it), and named by errors.
    pub fn scope(&self, name: &str) -> Scope {
        let path = self.module.borrow_mut().enter(name);
        self.comment(&path);
        Scope { module: Rc::clone(&self.module) }
    }

    /// Print a comment line here.
    pub fn comment(&self, text: &str) {
        for line in text.lines() {
            self.line(&format!("// {line}"));
        }
    }

    /// The type of a value. Of a value that is not visible here, a scalar's, and the error is kept.
    #[track_caller]
    pub fn ty(&self, value: Value) -> Type {
        let found = self.state.borrow().check_visible(value).map(|slot| slot.ty.clone());
        self.note("ty", Location::caller(), found, &[]).unwrap_or_else(|| DType::F32.scalar())
    }

    /// The element type of a value.
    #[track_caller]
    pub fn dtype(&self, value: Value) -> DType {
        self.ty(value).dtype
    }

    /// The dimensions of a value.
    #[track_caller]
    pub fn dims(&self, value: Value) -> Vec<i64> {
        self.ty(value).dims
    }

    /// One dimension of a value. Out of range it is 1, and the error is kept.
    #[track_caller]
    pub fn dim(&self, value: Value, axis: usize) -> i64 {
        let ty = self.ty(value);
        let found = ty.dims.get(axis).copied().ok_or_else(|| Fault {
            class: Class::Axis,
            message: format!("axis {axis} is out of range for {ty}"),
        });
        self.note("dim", Location::caller(), found, &[]).unwrap_or(1)
    }

    /// Names and types of `values`, or why one of them cannot be used here.
    pub(crate) fn look_up(&self, values: &[Value]) -> Result<Vec<(String, Type)>, Fault> {
        let state = self.state.borrow();
        values
            .iter()
            .map(|&value| state.check_visible(value).map(|slot| (slot.name.clone(), slot.ty.clone())))
            .collect()
    }

    /// Keep the error, if this is the module's first, and pass on what was found.
    pub(crate) fn note<T>(
        &self,
        op: &'static str,
        location: &'static Location<'static>,
        found: Result<T, Fault>,
        operands: &[Type],
    ) -> Option<T> {
        let Fault { class, message } = match found {
            Ok(found) => return Some(found),
            Err(fault) => fault,
        };
        let mut module = self.module.borrow_mut();
        let scope = module.scopes.last().cloned().unwrap_or_default();
        let operands = operands.iter().map(Type::to_string).collect();
        module.error.get_or_insert(Error { class, op, location, scope, message, operands });
        None
    }
}

/// Whether MLIR takes `name` as the name of a value or symbol without quotes.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|each| each.is_ascii_alphanumeric() || "_.$-".contains(each))
}

pub(crate) fn check_type(ty: &Type) -> Result<(), Fault> {
    ensure!(ty.dims.iter().all(|&dim| dim >= 0), Shape, "{ty} has a negative dimension");
    Ok(())
}
