//! Which algorithms to offer: what libssh2 can do, as far as the configuration allows it, the best for libssh2 first.

/// In libssh2, chacha20 costs two thirds of what AES-GCM does.
const CIPHERS: &[&str] = &[
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
    "aes256-gcm@openssh.com",
    "aes128-gcm@openssh.com",
];

/// A signature by SHA-1, and the old DSA: no longer offered by OpenSSH either.
const BROKEN_HOST_KEYS: &[&str] = &["ssh-rsa", "ssh-dss"];

/// The ciphers to offer, in order.
pub(super) fn ciphers<'a>(supported: &[&'a str], allowed: Option<&str>) -> Vec<&'a str> {
    let mut chosen = allowed_of(supported, allowed);
    chosen.retain(|name| CIPHERS.contains(name));
    chosen.sort_by_key(|name| CIPHERS.iter().position(|cipher| cipher == name));
    chosen
}

/// Key exchanges or message authentications to offer, in libssh2's order, which has the cheapest first.
pub(super) fn allowed_of<'a>(supported: &[&'a str], allowed: Option<&str>) -> Vec<&'a str> {
    let listed = |name: &&&str| allowed.is_none_or(|allowed| allowed.split(',').any(|one| one == **name));
    supported.iter().filter(listed).copied().collect()
}

/// The host key algorithms to offer: those by whose keys the host is known first. Certificates are not checked here.
pub(super) fn host_keys<'a>(
    supported: &[&'a str],
    allowed: Option<&str>,
    known_types: &[&str],
) -> Vec<&'a str> {
    let mut chosen = allowed_of(supported, allowed);
    chosen.retain(|name| !name.contains("-cert-v01@") && !BROKEN_HOST_KEYS.contains(name));
    // Stable: within both halves the order stays.
    chosen.sort_by_key(|name| !known_types.contains(&key_type(name)));
    chosen
}

/// The type of the keys that an algorithm signs with.
fn key_type(algorithm: &str) -> &str {
    match algorithm {
        "rsa-sha2-256" | "rsa-sha2-512" => "ssh-rsa",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheapest_cipher_first_and_no_weak_ones() {
        let supported = ["aes256-gcm@openssh.com", "aes256-ctr", "3des-cbc", "chacha20-poly1305@openssh.com"];
        assert_eq!(
            ciphers(&supported, None),
            ["chacha20-poly1305@openssh.com", "aes256-ctr", "aes256-gcm@openssh.com"]
        );
        assert_eq!(ciphers(&supported, Some("3des-cbc,aes256-ctr")), ["aes256-ctr"]);
    }

    #[test]
    fn known_host_keys_first() {
        let supported = [
            "ssh-ed25519",
            "ecdsa-sha2-nistp256",
            "rsa-sha2-512",
            "ssh-rsa",
            "ssh-ed25519-cert-v01@openssh.com",
        ];
        assert_eq!(host_keys(&supported, None, &[]), ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512"]);
        assert_eq!(
            host_keys(&supported, None, &["ssh-rsa"]),
            ["rsa-sha2-512", "ssh-ed25519", "ecdsa-sha2-nistp256"]
        );
        assert_eq!(host_keys(&supported, Some("ssh-rsa"), &[]), Vec::<&str>::new());
    }
}
