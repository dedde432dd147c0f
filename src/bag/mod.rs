//! Bags: immutable files of sealed blocks.
