//! A store in a local directory.
