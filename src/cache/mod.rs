//! The local cache: never trusted further than its seals, never needed for correctness.
