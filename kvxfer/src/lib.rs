//! Move one sequence's state between workers exactly once, or say why not.
