//! Keys, sealing and key slots.
