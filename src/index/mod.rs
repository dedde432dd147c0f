//! Which objects lie in which bags.
