//! Stores for tests.
