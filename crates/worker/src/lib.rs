//! What both worker roles do: describe, watch, join the membership, drain.
