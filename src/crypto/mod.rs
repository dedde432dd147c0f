//! Keys, sealing and key slots.
//!
//! One random [`MasterKey`] makes every other key, each by BLAKE3's key derivation with a context string of its own
//! ([`keys`]). What is stored is sealed ([`seal`]): XChaCha20-Poly1305 with a random nonce, and the place where it is stored as
//! associated data, so that a server can lose things but can neither change nor swap them unnoticed.
//! The master key itself is stored in key slots, wrapped under a passphrase, under a random secret ([`letters`] are how people keep one), or in the clear.
//!
//! Nonces are made in `seal.rs` and nowhere else. With 192 random bits no counter is kept, and no two machines that
//! share a key need to know of each other.

pub mod kdf;
pub mod keys;
pub mod keyslot;
pub mod letters;
pub mod seal;

pub use kdf::Cost;
pub use keys::{ConfigKey, HashKey, Keys, MasterKey, NameKey};
pub use keyslot::{KeySlot, KeySlotError, Protection, Secret};
pub use letters::LettersError;
pub use seal::{Context, Kind, OVERHEAD, SealError, SealKey};
