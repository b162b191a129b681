//! Turn received state into tokens.
