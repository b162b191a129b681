//! From a model, a phase, a shape bucket and a mesh to the program that runs it.
