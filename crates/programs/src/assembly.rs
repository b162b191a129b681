use std::cell::RefCell;
use std::collections::HashMap;

use model::StateShape;
use model::weights::{Encoding, Float, WeightSpec};
use stablehlo::{ArgAttrs, DType, Func, Module, Sharding, Value};

use crate::layers::Matrix;
use crate::program::array;
use crate::sampling::Drawn;
use crate::{Arg, ArgKind, Error, Input, Mesh, Output, Program, Res, ResKind, ShapeLadder, StateArray, Type};

/// A program under construction: declares arguments by what they mean and keeps the list for the caller.
///
/// All arguments are declared before the first region opens; [`Assembly::weight`] and the like then look them up.
#[derive(Debug)]
pub struct Assembly {
    name: String,
    module: Module,
    f: Func,
    mesh: Mesh,
    args: RefCell<Vec<Arg>>,
    weights: RefCell<HashMap<String, Value>>,
    missing: RefCell<Option<String>>,
    results: RefCell<Vec<(String, Value, Res)>>,
}

impl Assembly {
    /// An empty program.
    #[must_use]
    pub fn new(name: &str, mesh: &Mesh) -> Self {
        let module = Module::new(name);
        if mesh.is_one() {
            module.mesh(mesh.declare());
        }
        let f = module.main();
        Self {
            name: name.to_owned(),
            module,
            f,
            mesh: *mesh,
            args: RefCell::default(),
            weights: RefCell::default(),
            missing: RefCell::default(),
            results: RefCell::default(),
        }
    }

    /// The builder of the program's operations.
    #[must_use]
    pub fn f(&self) -> &Func {
        &self.f
    }

    /// The devices it is for.
    #[must_use]
    pub fn mesh(&self) -> Mesh {
        self.mesh
    }

    /// Declares a weight, or the part of it that one device of the mesh holds.
    pub fn declare_weight(&self, spec: &WeightSpec) {
        let dtype = match spec.encoding {
            Encoding::Float(Float::F32) | Encoding::Int8Scales => DType::F32,
            Encoding::Float(Float::Bf16) => DType::BF16,
            Encoding::Int8 => DType::S8,
            Encoding::Packed | Encoding::PackedScales => DType::U8,
        };
        let mut dims = spec.dims.clone();
        if let Some(held) = spec.cut.and_then(|axis| dims.get_mut(axis)) {
            *held /= self.mesh.devices();
        }
        let ty = array(dtype, &dims);
        let value = self.declare(&format!("weight.{}", spec.name), ArgKind::Weight(spec.clone()), ty, None);
        self.weights.borrow_mut().insert(spec.name.clone(), value);
    }

    /// A weight declared before. An unknown name makes [`Assembly::finish`] fail.
    #[must_use]
    pub fn weight(&self, name: &str) -> Value {
        match self.weights.borrow().get(name) {
            Some(&value) => value,
            None => {
                self.missing.borrow_mut().get_or_insert_with(|| name.to_owned());
                self.f.scalar(0f32)
            }
        }
    }

    /// A weight matrix declared before, however it is held.
    pub(crate) fn matrix(&self, name: &str) -> Matrix {
        let find = |suffix: &str| self.weights.borrow().get(&format!("{name}.{suffix}")).copied();
        match (find("int8"), find("packed"), find("scales")) {
            (Some(values), _, Some(scales)) => Matrix::Int8 { values, scales },
            (_, Some(packed), Some(scales)) => Matrix::Mxfp4 { packed, scales },
            _ => Matrix::Float(self.weight(name)),
        }
    }

    /// Declares a state array that the program gives back with [`Assembly::state_result`], in the same buffer.
    pub fn state(&self, what: StateArray, state: &StateShape, ladder: &ShapeLadder) -> Value {
        let name = format!("state.{}", what.name());
        self.declare(&name, ArgKind::State(what), what.ty(state, ladder), Some(&name))
    }

    /// Declares a state array that the program only reads.
    pub fn read_state(&self, what: StateArray, state: &StateShape, ladder: &ShapeLadder) -> Value {
        let name = format!("state.{}", what.name());
        self.declare(&name, ArgKind::State(what), what.ty(state, ladder), None)
    }

    /// Declares an input of the call.
    pub fn input(&self, what: Input, dtype: DType, dims: &[usize]) -> Value {
        self.declare(&format!("input.{}", what.name()), ArgKind::Input(what), array(dtype, dims), None)
    }

    /// Gives a state array back.
    pub fn state_result(&self, what: StateArray, value: Value) {
        self.result(&format!("state.{}", what.name()), ResKind::State(what), value);
    }

    /// Gives a value to the caller.
    pub fn output(&self, what: Output, value: Value) {
        self.result(&format!("output.{}", what.name()), ResKind::Output(what), value);
    }

    /// Gives what was drawn to the caller.
    pub(crate) fn drawn(&self, drawn: &Drawn) {
        self.output(Output::Sampled, drawn.tokens);
        self.output(Output::ChosenLogprob, drawn.chosen_logprob);
        self.output(Output::TopIds, drawn.top_ids);
        self.output(Output::TopLogprobs, drawn.top_logprobs);
    }

    /// Prints the program.
    ///
    /// # Errors
    /// The first ill-typed operation, or the first undeclared name.
    pub fn finish(self) -> Result<Program, Error> {
        if let Some(name) = self.missing.into_inner() {
            return Err(Error::Undeclared { program: self.name, name });
        }
        let results = self.results.into_inner();
        let outputs: Vec<(&str, Value, Option<Sharding>)> = results
            .iter()
            .map(|(name, value, res)| (name.as_str(), *value, self.mesh.whole(res.ty.rank())))
            .collect();
        self.f.ret_sharded(&outputs);
        let text = match self.module.finish() {
            Ok(program) => program.text,
            Err(source) => return Err(Error::Build { program: self.name, source: Box::new(source) }),
        };
        let results = results.into_iter().map(|(_, _, res)| res).collect();
        Ok(Program { name: self.name, text, args: self.args.into_inner(), results })
    }

    fn declare(&self, name: &str, what: ArgKind, ty: Type, donate_to: Option<&str>) -> Value {
        let mut attrs = ArgAttrs::new();
        if let Some(sharding) = self.mesh.whole(ty.rank()) {
            attrs = attrs.sharding(sharding);
        }
        if let Some(result) = donate_to {
            attrs = attrs.donate_to(result);
        }
        self.args.borrow_mut().push(Arg { what, ty: ty.clone() });
        self.f.arg(name, ty, attrs)
    }

    fn result(&self, name: &str, what: ResKind, value: Value) {
        let ty = self.f.ty(value);
        self.results.borrow_mut().push((name.to_owned(), value, Res { what, ty }));
    }
}
