//! Run step plans on one device thread; own weights and state arrays; export and import sequences.
