//! Checking a repository.
