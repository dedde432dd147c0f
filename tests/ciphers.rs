//! libssh2 with the ciphers that it is lent: `doc/decisions/ciphers-under-libssh2.md`.

#![expect(clippy::unwrap_used, reason = "a test says so by failing")]

use std::ffi::c_int;

use chacha20::ChaCha20Legacy;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _};
use kitbag as _;
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit as _;

/// `struct chachapoly_ctx` of libssh2.
#[repr(C, align(4))]
struct Cipher([u8; 128]);

#[expect(unsafe_code, reason = "the cipher of libssh2 that uses these functions")]
unsafe extern "C" {
    fn chacha_keysetup(context: *mut [u8; 64], key: *const [u8; 32], bits: u32);
    fn chachapoly_init(cipher: *mut Cipher, key: *const u8, len: usize) -> c_int;
    fn chachapoly_crypt(
        cipher: *mut Cipher,
        number: u64,
        to: *mut u8,
        from: *const u8,
        len: usize,
        head: usize,
        encrypt: c_int,
    ) -> c_int;
}

const HEAD: usize = 4;
const TAG: usize = 16;

/// Lets libssh2 work on a packet; none if it refuses it.
fn libssh2(key: &[u8; 64], number: u64, packet: &[u8], encrypt: bool) -> Option<Vec<u8>> {
    libssh2_sys::init();
    let len = if encrypt { packet.len() } else { packet.len() - TAG };
    let mut done = vec![0; len + TAG];
    let mut cipher = Cipher([0xaa; 128]);
    #[expect(unsafe_code, reason = "see above")]
    let code = unsafe {
        // SAFETY: a cipher has 128 bytes; both packets have room for what is asked for.
        assert_eq!(chachapoly_init(&raw mut cipher, key.as_ptr(), key.len()), 0);
        let (to, from) = (done.as_mut_ptr(), packet.as_ptr());
        chachapoly_crypt(&raw mut cipher, number, to, from, len - HEAD, HEAD, encrypt.into())
    };
    done.truncate(if encrypt { len + TAG } else { len });
    (code == 0).then_some(done)
}

/// The same by what the protocol's description says (`PROTOCOL.chacha20poly1305` of OpenSSH), with other means.
fn expected(key: &[u8; 64], number: u64, packet: &[u8]) -> Vec<u8> {
    let nonce = number.to_be_bytes().into();
    let [body, head]: [[u8; 32]; 2] = [&key[..32], &key[32..]].map(|half| half.try_into().unwrap());
    let mut done = packet.to_vec();
    ChaCha20Legacy::new(&head.into(), &nonce).apply_keystream(&mut done[..HEAD]);
    let mut cipher = ChaCha20Legacy::new(&body.into(), &nonce);
    let mut first = [0; 64];
    cipher.apply_keystream(&mut first);
    cipher.apply_keystream(&mut done[HEAD..]);
    let once: [u8; 32] = first[..32].try_into().unwrap();
    let tag = Poly1305::new(&once.into()).compute_unpadded(&done);
    done.extend_from_slice(&tag);
    done
}

#[test]
fn libssh2_seals_and_opens_as_it_should() {
    let key: [u8; 64] = std::array::from_fn(|at| u8::try_from(at * 3).unwrap());
    for len in [5, 12, 67, 68, 69, 132, 1000, 32_768 + 20] {
        let packet: Vec<u8> = (0..len).map(|at: usize| u8::try_from(at % 251).unwrap()).collect();
        for number in [0, 1, 0xffff_ffff] {
            let sealed = libssh2(&key, number, &packet, true).unwrap();
            assert!(sealed == expected(&key, number, &packet), "{len} bytes, number {number}");
            assert_eq!(libssh2(&key, number, &sealed, false).as_deref(), Some(&packet[..]));
            for at in [0, HEAD, sealed.len() - 1] {
                let mut broken = sealed.clone();
                broken[at] ^= 1;
                assert_eq!(libssh2(&key, number, &broken, false), None, "byte {at} of {len}");
            }
        }
    }
}

/// libssh2's own begins a context with four words of the cipher's, before the key.
#[test]
fn libssh2_is_lent_ours() {
    let (mut context, key) = ([0; 64], std::array::from_fn(|at| u8::try_from(at + 1).unwrap()));
    #[expect(unsafe_code, reason = "a function of libssh2, or the one in its place")]
    // SAFETY: there is room for a context, and a key.
    unsafe {
        chacha_keysetup(&raw mut context, &raw const key, 256);
    }
    assert_eq!(context[..32], key, "libssh2 uses its own");
}
