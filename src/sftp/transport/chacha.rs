//! The ciphers `ChaCha20` and Poly1305 for libssh2, with the vector instructions of the processor.
//!
//! libssh2 brings its own of both, in portable C. They took half of the processor time of a transfer, and bounded what
//! the one thread of a connection carries. They are plain functions with well-known results, so these here stand in
//! their places: a linker takes a file out of a library only for a symbol that is still missing, and these are there
//! already. What is made of them stays libssh2's: which key is for what, and whether a tag is the right one.
//! `doc/decisions/ciphers-under-libssh2.md` says what else was thought of.
//!
//! Relied on are the names and shapes in `chacha.h` and `poly1305.h` of libssh2 1.11, which are OpenBSD's of 2013. Were they to change, the
//! tests would fail: `tests/ciphers.rs` lets libssh2 encrypt and decrypt, sees that it comes here, and compares with the standards'
//! own ciphers. The library's own tests leave libssh2 as it is: they may be linked together with the library itself, and
//! two would be one too many.

use chacha20::ChaCha20Legacy;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _, StreamCipherSeek as _};
use poly1305::Poly1305;
use poly1305::universal_hash::{KeyInit as _, UniversalHash as _};
use zeroize::Zeroize as _;

/// Bytes that Poly1305 takes in at once: four of its blocks.
const ABREAST: usize = 64;

/// Bytes of a block of `ChaCha20`.
const BLOCK: u64 = 64;

/// What libssh2 has 64 bytes for, and does not look into: `struct chacha_ctx`.
#[repr(C)]
struct Context {
    key: [u8; 32],
    /// The number of the next block.
    counter: [u8; 8],
    nonce: [u8; 8],
    /// Libssh2's own have the constants of the cipher there.
    _spare: [u8; 16],
}

const _: () = assert!(size_of::<Context>() == 64 && align_of::<Context>() == 1);

impl Context {
    /// Encrypts or decrypts, and goes on behind the last block that was begun.
    fn apply(&mut self, bytes: &mut [u8]) {
        let block = u64::from_le_bytes(self.counter);
        let mut cipher = ChaCha20Legacy::new(&self.key.into(), &self.nonce.into());
        let sought = cipher.try_seek(block.saturating_mul(BLOCK));
        if sought.and_then(|()| cipher.try_apply_keystream(bytes)).is_err() {
            // Behind the end of the stream, 256 GiB into a packet: nothing gets out, and nothing is believed.
            bytes.zeroize();
        }
        let blocks = u64::try_from(bytes.len()).unwrap_or(u64::MAX).div_ceil(BLOCK);
        self.counter = block.saturating_add(blocks).to_le_bytes();
    }
}

/// The tag of bytes under a key that is used once.
fn tag(bytes: &[u8], key: &[u8; 32]) -> [u8; 16] {
    let mut mac = Poly1305::new(&(*key).into());
    // `compute_unpadded` alone goes block by block, and copies each.
    let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % ABREAST);
    mac.update_padded(whole);
    mac.compute_unpadded(rest).into()
}

/// What libssh2 calls.
#[cfg(not(test))]
mod lent {

    use super::Context;

    /// Sets a key. libssh2 has only those of 256 bits.
    #[expect(unsafe_code, reason = "called by libssh2")]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn chacha_keysetup(context: *mut Context, key: *const [u8; 32], _bits: u32) {
        // SAFETY: libssh2 passes room for a context, which need not be aligned, and a key.
        unsafe { (*context).key = *key };
    }

    /// Sets the nonce, and the counter, which begins at 0 if there is none.
    #[expect(unsafe_code, reason = "called by libssh2")]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn chacha_ivsetup(
        context: *mut Context,
        nonce: *const [u8; 8],
        counter: *const [u8; 8],
    ) {
        // SAFETY: the context has its key; the nonce is there, and the counter is or is null.
        unsafe {
            (*context).nonce = *nonce;
            (*context).counter = counter.as_ref().copied().unwrap_or_default();
        }
    }

    /// Encrypts or decrypts bytes, in their place or to another.
    #[expect(unsafe_code, reason = "called by libssh2")]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn chacha_encrypt_bytes(
        context: *mut Context,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) {
        // SAFETY: the context has key and nonce, and no bytes of it are among the others; so many are readable there, and writable here.
        unsafe {
            if !std::ptr::eq(from, to) {
                std::ptr::copy(from, to, len);
            }
            (*context).apply(std::slice::from_raw_parts_mut(to, len));
        }
    }

    /// The tag of bytes under a key that is used once.
    #[expect(unsafe_code, reason = "called by libssh2")]
    #[unsafe(no_mangle)]
    unsafe extern "C" fn poly1305_auth(
        tag: *mut [u8; 16],
        bytes: *const u8,
        len: usize,
        key: *const [u8; 32],
    ) {
        // SAFETY: so many bytes are readable, a key is there and room for a tag, which is not among the bytes.
        unsafe {
            *tag = super::tag(std::slice::from_raw_parts(bytes, len), &*key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, section 2.4.2. The first 32 bits of its nonce are the upper half of the counter here.
    #[test]
    fn the_cipher_of_the_standard() {
        let key = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let mut bytes =
            *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
            sunscreen would be it.";
        let expected = "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b357\
            1639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab77937365af90bbf74a35be6\
            b40b8eedf2785e42874d";
        let nonce = [0, 0, 0, 0x4a, 0, 0, 0, 0];
        let mut context = Context { key, counter: 1_u64.to_le_bytes(), nonce, _spare: [0; 16] };
        // In two parts, of which the first ends with a block.
        let (one, other) = bytes.split_at_mut(64);
        context.apply(one);
        context.apply(other);
        assert_eq!(bytes.map(|byte| format!("{byte:02x}")).concat(), expected);
    }

    #[test]
    fn a_tag_is_the_same_however_many_blocks_are_taken_at_once() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| at.to_le_bytes()[0].wrapping_mul(37)).collect();
        let key = [0x5a; 32];
        for len in (0..300).chain([640, 704, 999, 1000]) {
            let expected: [u8; 16] = Poly1305::new(&key.into()).compute_unpadded(&bytes[..len]).into();
            assert_eq!(tag(&bytes[..len], &key), expected, "{len} bytes");
        }
    }

    #[test]
    fn nothing_gets_out_behind_the_end_of_the_stream() {
        let counter = (u64::from(u32::MAX) + 1).to_le_bytes();
        let mut context = Context { key: [7; 32], counter, nonce: [0; 8], _spare: [0; 16] };
        let mut bytes = *b"plain";
        context.apply(&mut bytes);
        assert_eq!(bytes, [0; 5]);
    }
}
