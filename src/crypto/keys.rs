//! The master key and the keys derived from it: one type each, so that none can stand in another's place.

use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::seal::SealKey;
use crate::base::id::{ClientId, ObjectId};
use crate::base::secret::Key32;

/// The key of a repository, from which all others come. It is stored only wrapped, in key slots.
#[derive(Clone)]
pub struct MasterKey(Key32);

impl MasterKey {
    /// A fresh random key.
    #[must_use]
    pub fn random() -> Self {
        Self(Key32::random())
    }

    /// Takes over what a key slot held.
    #[must_use]
    pub fn new(key: Key32) -> Self {
        Self(key)
    }

    /// The bytes, for the key slot that wraps them.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        self.0.expose()
    }

    fn derive(&self, context: &str) -> Key32 {
        Key32::new(blake3::derive_key(context, self.0.expose()))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// Names objects.
#[derive(Debug)]
pub struct HashKey(Key32);

impl HashKey {
    /// The name of an object: the keyed BLAKE3 hash of its contents, so that whoever has not the key cannot tell whether a
    /// known file is stored.
    #[must_use]
    pub fn object_id(&self, contents: &[u8]) -> ObjectId {
        ObjectId(*blake3::keyed_hash(self.0.expose(), contents).as_bytes())
    }
}

/// Hides names.
#[derive(Debug)]
pub struct NameKey {
    clients: Key32,
    boundaries: Key32,
}

impl NameKey {
    /// What stands for a client's name in file names: the first 16 bytes of its keyed BLAKE3 hash.
    #[must_use]
    pub fn client_id(&self, client: &[u8]) -> ClientId {
        let hash = blake3::keyed_hash(self.clients.expose(), client);
        let mut id = [0; ClientId::LEN];
        id.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
        ClientId(id)
    }

    /// A number that looks random, the same for the same name: where to split DIR pages. A few nanoseconds for a short
    /// name. SipHash-1-3, keyed, so that page sizes do not tell names.
    #[must_use]
    pub fn boundary(&self, name: &[u8]) -> u64 {
        let mut key = [0; 16];
        key.iter_mut().zip(self.boundaries.expose()).for_each(|(to, from)| *to = *from);
        let mut hasher = SipHasher13::new_with_key(&key);
        hasher.write(name);
        hasher.finish()
    }
}

/// Vouches for the configuration, which is not secret.
#[derive(Debug)]
pub struct ConfigKey(Key32);

impl ConfigKey {
    /// The keyed BLAKE3 hash that proves that whoever wrote the configuration had the key.
    #[must_use]
    pub fn mac(&self, config: &[u8]) -> [u8; 32] {
        blake3::keyed_hash(self.0.expose(), config).into()
    }

    /// Whether `mac` belongs to `config`; takes the same time for all that do not.
    #[must_use]
    pub fn verifies(&self, config: &[u8], mac: &[u8; 32]) -> bool {
        blake3::keyed_hash(self.0.expose(), config) == *mac
    }
}

/// Every key of an open repository; clones share them. Wiped when the last clone is dropped.
#[derive(Clone)]
pub struct Keys(Arc<Derived>);

struct Derived {
    seal: SealKey,
    hash: HashKey,
    names: NameKey,
    config: ConfigKey,
    gear: Key32,
}

impl Keys {
    /// Derives them all: under a microsecond each.
    #[must_use]
    pub fn derive(master: &MasterKey) -> Self {
        Self(Arc::new(Derived {
            seal: SealKey::new(master.derive("kitbag 2026-11 v1 seal")),
            hash: HashKey(master.derive("kitbag 2026-11 v1 object id")),
            names: NameKey {
                clients: master.derive("kitbag 2026-11 v1 client id"),
                boundaries: master.derive("kitbag 2026-11 v1 page boundary"),
            },
            config: ConfigKey(master.derive("kitbag 2026-11 v1 config")),
            gear: master.derive("kitbag 2026-11 v1 chunker gear"),
        }))
    }

    /// Seals and opens what is stored.
    #[must_use]
    pub fn seal(&self) -> &SealKey {
        &self.0.seal
    }

    /// Names objects.
    #[must_use]
    pub fn hash(&self) -> &HashKey {
        &self.0.hash
    }

    /// Hides names.
    #[must_use]
    pub fn names(&self) -> &NameKey {
        &self.0.names
    }

    /// Vouches for the configuration.
    #[must_use]
    pub fn config(&self) -> &ConfigKey {
        &self.0.config
    }

    /// The chunker's gear table: 256 numbers, little-endian, from BLAKE3's extended output keyed with the derived key.
    #[must_use]
    pub fn gear_table(&self) -> [u64; 256] {
        let mut output = blake3::Hasher::new_keyed(self.0.gear.expose()).finalize_xof();
        let mut table = [0; 256];
        for number in &mut table {
            let mut bytes = [0; 8];
            output.fill(&mut bytes);
            *number = u64::from_le_bytes(bytes);
        }
        table
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(byte: u8) -> Keys {
        Keys::derive(&MasterKey::new(Key32::new([byte; 32])))
    }

    #[test]
    fn the_same_master_key_gives_the_same_keys() {
        let (one, two) = (keys(1), keys(1));
        assert_eq!(one.hash().object_id(b"contents"), two.hash().object_id(b"contents"));
        assert_eq!(one.names().client_id(b"laptop"), two.names().client_id(b"laptop"));
        assert_eq!(one.names().boundary(b"name"), two.names().boundary(b"name"));
        assert_eq!(one.gear_table(), two.gear_table());
    }

    #[test]
    fn another_master_key_gives_others() {
        let (one, two) = (keys(1), keys(2));
        assert_ne!(one.hash().object_id(b"contents"), two.hash().object_id(b"contents"));
        assert_ne!(one.names().client_id(b"laptop"), two.names().client_id(b"laptop"));
        assert_ne!(one.names().boundary(b"name"), two.names().boundary(b"name"));
        assert_ne!(one.gear_table(), two.gear_table());
    }

    #[test]
    fn derived_keys_differ_from_each_other() {
        let keys = keys(1);
        assert_ne!(keys.hash().object_id(b"x").0[..16], keys.names().client_id(b"x").0);
        let mut table = keys.gear_table().to_vec();
        table.sort_unstable();
        table.dedup();
        assert_eq!(table.len(), 256);
    }

    #[test]
    fn secrets_do_not_print() {
        let master = MasterKey::new(Key32::new([0xab; 32]));
        let keys = Keys::derive(&master);
        let text = format!("{master:?} {keys:?} {:?} {:?} {:?}", keys.seal(), keys.hash(), keys.names());
        assert_eq!(
            text,
            "MasterKey(..) Keys(..) SealKey(Key32(..)) HashKey(Key32(..)) NameKey { clients: Key32(..), boundaries: Key32(..) }"
        );
    }

    /// Computed by another program, from the text of `doc/format.md`.
    #[test]
    fn golden() {
        let keys = keys(1);
        let object = "99d7fa9c025935cc17674dde4819b48ddf245bf5475a2076579c9408cb2cfffa";
        assert_eq!(keys.hash().object_id(b"contents").to_string(), object);
        assert_eq!(keys.names().client_id(b"laptop").to_string(), "c52eda6126c113955b4e37df9f4d08e3");
        assert_eq!(keys.names().boundary(b"README"), 0x8e6f_cfa8_f5fe_c44a);
        let table = keys.gear_table();
        assert_eq!(table[..3], [0x3be5_0612_2eee_ae83, 0x0dd0_0012_0120_be3a, 0xffc1_8ee1_74d5_694c]);
    }
}
