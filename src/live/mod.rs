//! The file system that is backed up and restored to.
