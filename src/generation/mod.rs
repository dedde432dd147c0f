//! Generations, sessions and bag lists.
