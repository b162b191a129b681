//! Turn a prompt into state and hand it over.
