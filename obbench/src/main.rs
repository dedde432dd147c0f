//! The `obbench` program.

fn main() {}
