//! What everybody may use: identifiers, times, secrets, the CBOR codec, budgets, cancellation.

pub mod atomic_file;
pub mod budget;
pub mod cancel;
pub mod codec;
pub mod header;
pub mod id;
pub mod program;
pub mod secret;
pub mod text;
pub mod time;
pub mod uniform;
pub mod varint;

/// `N` bytes of the operating system's random numbers.
///
/// # Panics
/// If the operating system gives none: nothing can be named or sealed safely then.
#[must_use]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        panic!("the operating system gives no random numbers: {error}");
    }
    bytes
}
