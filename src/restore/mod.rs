//! Bringing a generation back.
