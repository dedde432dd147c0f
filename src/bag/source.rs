//! Objects by reference, with the blocks opened last kept.
