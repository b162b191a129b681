//! Who is alive, in which role, with how much room: one trait, an in-memory registry.
