//! Build typed StableHLO, with shardings and donations, and print it.
//!
//! `programs` calls in with a model's mathematics; the text that comes out goes to `pjrt` through `engine`. This room
//! calls nobody: it does no I/O and knows no model.
//!
//! A [`Module`] hands out [`Func`] builders. Every operation is a `&self` method that takes and returns [`Value`]s,
//! which are small and `Copy`, so that a formula reads like one:
//!
//! ```
//! use stablehlo::{ArgAttrs, DType, Module};
//!
//! let module = Module::new("axpy");
//! let f = module.main();
//! let x = f.input("x", DType::F32.tensor([4]));
//! let y = f.arg("y", DType::F32.tensor([4]), ArgAttrs::new().donate_to("y"));
//! f.ret(&[("y", f.add(f.mul_scalar(x, 2.0), y))]);
//! let program = module.finish()?;
//! assert!(program.text.contains("tf.aliasing_output = 0"));
//! # Ok::<(), stablehlo::Error>(())
//! ```
//!
//! # Errors
//! Shapes and element types are inferred and checked at every call. A wrong call does not stop the construction: the
//! *first* [`Error`] is kept, with the operation, the offending types, the scope and the `file:line:column` of the
//! call (public methods are `#[track_caller]`; mark functions of your own the same way to move the blame to their
//! callers), and [`Module::finish`] returns it. Until then a wrong call returns a value of its first operand's type.
//!
//! # Regions
//! Control flow and region operations take closures, which receive the builder and the region's values. The bodies of
//! `while`, `if` and `case` may use values of the functions and regions around them; the bodies of reductions,
//! sorts, scatters and collectives may not, and saying so is an error at the call. A value made inside a region is
//! dead outside it.

mod arg;
mod emit;
mod error;
mod func;
mod literal;
mod module;
mod op;
mod ops;
mod print;
mod region;
mod sharding;
mod types;

pub use arg::{Arg, ArgAttrs, Donation, Output};
pub use error::{Class, Error};
pub use func::{Func, Scope, Value};
pub use literal::Element;
pub use module::{Module, Program};
pub use op::Op;
pub use ops::call::{BackendConfig, Composite, CustomCall};
pub use ops::collective::Channel;
pub use ops::control::Branch;
pub use ops::dot::{Dot, Precision, Triangular};
pub use ops::elementwise::{Direction, Order};
pub use ops::index::{Gather, Scatter, Update};
pub use ops::random::RngAlgorithm;
pub use ops::reduce::Reducer;
pub use ops::window::Window;
pub use sharding::{Mesh, Sharding};
pub use types::{DType, Type};
