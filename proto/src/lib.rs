//! The tandem.v1 contracts, and the one place where raw messages become checked values.
