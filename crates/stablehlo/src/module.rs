//! A module of functions, and the finished program.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use crate::arg::{Arg, Donation, Output};
use crate::error::{Class, Error, Fault};
use crate::func::{Func, FuncState, is_identifier};
use crate::print;
use crate::sharding::Mesh;

#[derive(Debug, Default)]
pub(crate) struct ModuleState {
    pub(crate) name: String,
    pub(crate) meshes: Vec<Mesh>,
    pub(crate) funcs: Vec<Rc<RefCell<FuncState>>>,
    /// Paths of the open scopes, innermost last.
    pub(crate) scopes: Vec<String>,
    /// Every scope path seen, in order of first use: the location table at the end of the text.
    pub(crate) locations: Vec<String>,
    pub(crate) error: Option<Error>,
}

impl ModuleState {
    /// Open a scope inside the current one; returns its path.
    pub(crate) fn enter(&mut self, name: &str) -> String {
        let clean: String =
            name.chars().filter(|each| !each.is_control() && !"\"\\".contains(*each)).collect();
        let path = match self.scopes.last() {
            Some(outer) => format!("{outer}/{clean}"),
            None => clean,
        };
        self.scopes.push(path.clone());
        if !self.locations.contains(&path) {
            self.locations.push(path.clone());
        }
        path
    }

    /// The ` loc(...)` that ends an operation inside a scope.
    pub(crate) fn loc(&self) -> String {
        let index = self.scopes.last().and_then(|path| self.locations.iter().position(|each| each == path));
        index.map(|index| format!(" loc(#loc{index})")).unwrap_or_default()
    }

    fn fail(
        &mut self,
        class: Class,
        op: &'static str,
        location: &'static Location<'static>,
        message: String,
    ) {
        let scope = self.scopes.last().cloned().unwrap_or_default();
        self.error.get_or_insert(Error { class, op, location, scope, message, operands: Vec::new() });
    }
}

/// A program under construction: one public function `main` and any number of private ones.
pub struct Module {
    state: Rc<RefCell<ModuleState>>,
    location: &'static Location<'static>,
}

impl fmt::Debug for Module {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Module").field("name", &self.state.borrow().name).finish_non_exhaustive()
    }
}

/// A finished program: the text to compile, and what an executor checks its arguments against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub name: String,
    /// MLIR text of the StableHLO, `chlo`, `func` and `sdy` dialects. Equal construction gives equal text.
    pub text: String,
    pub meshes: Vec<Mesh>,
    /// In the order of execution's arguments.
    pub args: Vec<Arg>,
    /// In the order of execution's results.
    pub outputs: Vec<Output>,
}

impl Program {
    /// The position of the argument of this name.
    pub fn arg(&self, name: &str) -> Option<usize> {
        self.args.iter().position(|arg| arg.name == name)
    }

    /// The position of the result of this name.
    pub fn output(&self, name: &str) -> Option<usize> {
        self.outputs.iter().position(|output| output.name == name)
    }
}

impl Module {
    #[track_caller]
    pub fn new(name: &str) -> Self {
        let location = Location::caller();
        let mut state = ModuleState { name: name.to_owned(), ..ModuleState::default() };
        if !is_identifier(name) {
            state.fail(Class::Signature, "module", location, format!("{name:?} cannot name a module"));
        }
        Module { state: Rc::new(RefCell::new(state)), location }
    }

    /// Add a mesh of devices for shardings to name. The first one gives the number of partitions.
    #[track_caller]
    pub fn mesh(&self, mesh: Mesh) {
        let mut state = self.state.borrow_mut();
        let sound = is_identifier(&mesh.name)
            && mesh.axes.iter().all(|(axis, size)| is_identifier(axis) && *size > 0)
            && (1..mesh.axes.len())
                .all(|at| mesh.axes[..at].iter().all(|earlier| earlier.0 != mesh.axes[at].0));
        if !sound || state.meshes.iter().any(|earlier| earlier.name == mesh.name) {
            let message = format!("mesh {mesh} has a bad or repeated name or an empty axis");
            state.fail(Class::Attribute, "mesh", Location::caller(), message);
        }
        state.meshes.push(mesh);
    }

    /// The builder of `main`, the function that is executed.
    #[track_caller]
    pub fn main(&self) -> Func {
        if let Some(main) = self.state.borrow().funcs.first() {
            return Func { state: Rc::clone(main), module: Rc::clone(&self.state) };
        }
        self.add("main", Location::caller())
    }

    /// The builder of a private function, to be called by [`Func::call`] once it has its results.
    #[track_caller]
    pub fn func(&self, name: &str) -> Func {
        let location = Location::caller();
        if self.state.borrow().funcs.is_empty() {
            self.add("main", self.location);
        }
        let taken = self.state.borrow().funcs.iter().any(|func| func.borrow().name == name);
        if taken || !is_identifier(name) {
            let message = format!("{name:?} is taken or cannot name a function");
            self.state.borrow_mut().fail(Class::Signature, "func", location, message);
        }
        self.add(name, location)
    }

    fn add(&self, name: &str, location: &'static Location<'static>) -> Func {
        let mut module = self.state.borrow_mut();
        let state = Rc::new(RefCell::new(FuncState::new(module.funcs.len() as u32, name, location)));
        module.funcs.push(Rc::clone(&state));
        Func { state, module: Rc::clone(&self.state) }
    }

    /// The program, or the first error of its construction.
    ///
    /// # Errors
    /// What any call noted, then what only shows in the whole: a function without results, a donation to a result that
    /// does not exist, has another type, or was given away before.
    pub fn finish(self) -> Result<Program, Error> {
        let mut module = self.state.borrow_mut();
        let funcs: Vec<_> = module.funcs.iter().map(Rc::clone).collect();
        if funcs.is_empty() {
            module.fail(Class::Signature, "finish", self.location, "the module has no main".to_owned());
        }
        for func in &funcs {
            let func = func.borrow();
            if func.outputs.is_none() {
                module.fail(Class::Signature, "finish", func.location, format!("{} has no ret", func.name));
            }
            if let Err((location, fault)) = check_donations(&func) {
                module.fail(fault.class, "arg", location, fault.message);
            }
        }
        if let Some(error) = module.error.take() {
            return Err(error);
        }
        let text = print::module(&module);
        let (args, outputs) = funcs.first().map_or_else(Default::default, |main| {
            let main = main.borrow();
            (main.args.clone(), main.outputs.clone().unwrap_or_default())
        });
        Ok(Program { name: module.name.clone(), text, meshes: module.meshes.clone(), args, outputs })
    }
}

fn check_donations(func: &FuncState) -> Result<(), (&'static Location<'static>, Fault)> {
    let outputs = func.outputs.as_deref().unwrap_or_default();
    let mut given: Vec<&str> = Vec::new();
    for arg in &func.args {
        let blame = |message| Err((arg.location, Fault { class: Class::Signature, message }));
        if arg.donation != Donation::Keep && !func.is_main() {
            return blame(format!("argument {:?} of private function {} is donated", arg.name, func.name));
        }
        let Donation::To(target) = &arg.donation else {
            continue;
        };
        let Some(output) = outputs.iter().find(|output| output.name == *target) else {
            return blame(format!("argument {:?} is donated to {target:?}, which is no result", arg.name));
        };
        if output.ty != arg.ty {
            let (from, to) = (&arg.ty, &output.ty);
            return blame(format!("argument {:?} of {from} is donated to {target:?} of {to}", arg.name));
        }
        if given.contains(&target.as_str()) {
            return blame(format!("argument {:?} is donated to {target:?}, as another is", arg.name));
        }
        given.push(target);
    }
    Ok(())
}
