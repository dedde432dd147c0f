//! Key slots: files that hold the master key, wrapped.
//!
//! A slot is opened by a passphrase, by a random secret that lies in a key file or on paper, or by nothing (`--encryption none`): then the wrapping key is made from a public text,
//! and everything else, checks included, is the same. The wrapping key depends on every field in the clear, so that a
//! changed label does not open either. A plain checksum at the end tells a damaged slot from a wrong passphrase.
//!
//! ```text
//! offset  bytes
//!      0  10     header (base::header), kind 16
//!     10         CBOR map: the fields in the clear
//!            72  sealed master key: nonce (24), ciphertext (32), tag (16); context: kind 16, the slot's id, offset 0
//!            32  BLAKE3 of all that precedes
//! ```

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use super::kdf::{self, Cost, CostOutOfBounds, SALT_LEN};
use super::keys::MasterKey;
use super::seal::{Context, Kind, OVERHEAD, SealKey};
use crate::base::codec;
use crate::base::header::{self, HeaderError};
use crate::base::id::{CollectionId, KeySlotId, RepositoryId};
use crate::base::random_bytes;
use crate::base::secret::{Key32, Passphrase};
use crate::base::time::Timestamp;

/// The longest file that can be a key slot.
pub const MAX_LEN: usize = 16 << 10;
/// The longest label, in bytes.
pub const MAX_LABEL: usize = 1024;

const SEALED_LEN: usize = 32 + OVERHEAD;
const CHECKSUM_LEN: usize = 32;

/// What stands for a set of slots: the first 16 bytes of a hash of their ids.
#[must_use]
pub fn mark(slots: &BTreeSet<KeySlotId>) -> CollectionId {
    let mut hasher = blake3::Hasher::new_derive_key("kitbag 2026-11 v1 key slots");
    for id in slots {
        hasher.update(id.as_bytes());
    }
    let mut mark = [0; CollectionId::LEN];
    mark.iter_mut().zip(hasher.finalize().as_bytes()).for_each(|(to, from)| *to = *from);
    CollectionId(mark)
}

/// What opens a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Nothing is needed: whoever reads the repository's files reads the backups.
    None,
    /// A passphrase.
    Argon2id {
        /// What makes equal passphrases give different keys.
        salt: [u8; SALT_LEN],
        /// What a guess costs.
        cost: Cost,
    },
    /// A random secret. Guessing it is hopeless, so nothing needs to make that dear.
    KeyFile,
}

/// What a person has to open a slot.
#[derive(Debug, Clone)]
pub enum Secret {
    /// A passphrase.
    Passphrase(Passphrase),
    /// What a key file holds.
    Key(Key32),
}

impl From<Passphrase> for Secret {
    fn from(passphrase: Passphrase) -> Self {
        Self::Passphrase(passphrase)
    }
}

impl Protection {
    /// A passphrase at this cost, with a fresh salt.
    #[must_use]
    pub fn argon2id(cost: Cost) -> Self {
        Self::Argon2id { salt: random_bytes(), cost }
    }
}

/// A key slot: the master key, wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySlot {
    id: KeySlotId,
    repository: RepositoryId,
    protection: Protection,
    label: String,
    created: Timestamp,
    /// The fields above as stored, and those that a later version may add: the wrapping key depends on them.
    clear: Vec<u8>,
    sealed: [u8; SEALED_LEN],
}

/// Why a key slot cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySlotError {
    /// The bytes are not those that were written.
    #[error("the key slot is damaged")]
    Damaged,
    /// Written by a later kitbag.
    #[error("the key slot has format version {0}, which needs a newer kitbag")]
    NewerFormat(u8),
    /// Protected in a way that this version does not know.
    #[error("the key slot is protected by method {0}, which needs a newer kitbag")]
    UnknownProtection(u8),
    /// Opening it would take more memory or time than is reasonable.
    #[error("the key slot asks for too much: {0}")]
    Cost(#[from] CostOutOfBounds),
    /// The label is too long.
    #[error("a label of a key slot has at most {MAX_LABEL} bytes")]
    LongLabel,
    /// It holds a master key that took the place of the first one.
    #[error("the key slot is of a renewed master key, which needs a newer kitbag")]
    Renewed,
    /// A passphrase or a key file is needed, and the other or none was given.
    #[error("the key slot needs another kind of secret")]
    SecretNeeded,
    /// The passphrase does not open it (or the slot belongs to another repository, or was tampered with by somebody who knows the format).
    #[error("the passphrase does not open the key slot")]
    WrongPassphrase,
    /// As for a passphrase.
    #[error("the key file does not open the key slot")]
    WrongKey,
    /// The machine has not the memory that the derivation needs.
    #[error("there is no memory to try the passphrase")]
    NoMemory,
}

impl KeySlotError {
    /// Whether a later kitbag could use the slot.
    #[must_use]
    pub fn is_from_later(&self) -> bool {
        matches!(self, Self::NewerFormat(_) | Self::UnknownProtection(_) | Self::Renewed)
    }
}

/// The fields in the clear, as stored.
#[derive(Serialize, Deserialize)]
struct Clear {
    /// 0: nothing, 1: Argon2id, 2: key file.
    protection: u8,
    repository: RepositoryId,
    label: String,
    created: Timestamp,
    /// Empty without a passphrase.
    #[serde(with = "serde_bytes")]
    salt: Vec<u8>,
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    /// Which master key it holds. Others than 0 are reserved.
    #[serde(default, skip_serializing_if = "is_first")]
    epoch: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_first(epoch: &u32) -> bool {
    *epoch == 0
}

impl Clear {
    fn new(repository: RepositoryId, protection: Protection, label: &str, created: Timestamp) -> Self {
        let (protection, salt, cost) = match protection {
            Protection::None => (0, Vec::new(), None),
            Protection::Argon2id { salt, cost } => (1, salt.to_vec(), Some(cost)),
            Protection::KeyFile => (2, Vec::new(), None),
        };
        Self {
            protection,
            repository,
            label: label.to_owned(),
            created,
            salt,
            memory_kib: cost.map_or(0, Cost::memory_kib),
            passes: cost.map_or(0, Cost::passes),
            lanes: cost.map_or(0, Cost::lanes),
            epoch: 0,
        }
    }

    fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    fn protection(&self) -> Result<Protection, KeySlotError> {
        match self.protection {
            0 => Ok(Protection::None),
            1 => Ok(Protection::Argon2id {
                salt: self.salt.as_slice().try_into().map_err(|_other_length| KeySlotError::Damaged)?,
                cost: Cost::new(self.memory_kib, self.passes, self.lanes)?,
            }),
            2 => Ok(Protection::KeyFile),
            other => Err(KeySlotError::UnknownProtection(other)),
        }
    }
}

impl KeySlot {
    /// Wraps the master key in a new slot.
    ///
    /// # Errors
    /// `SecretNeeded` when the protection wants one and there is none of its kind; `LongLabel`; `NoMemory`.
    pub fn wrap(
        master: &MasterKey,
        repository: RepositoryId,
        protection: Protection,
        secret: Option<&Secret>,
        label: &str,
        created: Timestamp,
    ) -> Result<Self, KeySlotError> {
        if label.len() > MAX_LABEL {
            return Err(KeySlotError::LongLabel);
        }
        let id = KeySlotId::random();
        let clear = Clear::new(repository, protection, label, created).encode();
        let mut slot = Self {
            id,
            repository,
            protection,
            label: label.to_owned(),
            created,
            clear,
            sealed: [0; SEALED_LEN],
        };
        let sealed = slot.wrapping_key(secret)?.seal(&slot.context(), master.expose());
        slot.sealed = sealed.try_into().map_err(|_longer| KeySlotError::Damaged)?;
        Ok(slot)
    }

    /// Gives the master key back. With a passphrase it takes as long as its cost says.
    ///
    /// # Errors
    /// `SecretNeeded`, `WrongPassphrase`, `WrongKey`, `NoMemory`. A slot that needs nothing and does not open is `Damaged`.
    pub fn open(&self, secret: Option<&Secret>) -> Result<MasterKey, KeySlotError> {
        let mut sealed = self.sealed;
        let opened = self.wrapping_key(secret)?.open_in_place(&self.context(), &mut sealed);
        let failure = match self.protection {
            Protection::None => KeySlotError::Damaged,
            Protection::Argon2id { .. } => KeySlotError::WrongPassphrase,
            Protection::KeyFile => KeySlotError::WrongKey,
        };
        let key = opened.ok().and_then(|text| <[u8; 32]>::try_from(&*text).ok()).ok_or(failure)?;
        sealed.zeroize();
        Ok(MasterKey::new(Key32::new(key)))
    }

    /// The slot's id, from which its file name is made.
    #[must_use]
    pub fn id(&self) -> KeySlotId {
        self.id
    }

    /// The repository whose master key it holds. Another's slot can lie here after an unfinished `init`; it is ignored.
    #[must_use]
    pub fn repository(&self) -> RepositoryId {
        self.repository
    }

    /// What opens it.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// What people call it.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> Timestamp {
        self.created
    }

    /// Whether something is needed to open it.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.protection != Protection::None
    }

    /// Whether a passphrase is needed.
    #[must_use]
    pub fn needs_passphrase(&self) -> bool {
        matches!(self.protection, Protection::Argon2id { .. })
    }

    /// Whether a key file is needed.
    #[must_use]
    pub fn needs_key_file(&self) -> bool {
        self.protection == Protection::KeyFile
    }

    /// Whether this is the kind of secret that it needs.
    #[must_use]
    pub fn takes(&self, secret: &Secret) -> bool {
        match secret {
            Secret::Passphrase(_) => self.needs_passphrase(),
            Secret::Key(_) => self.needs_key_file(),
        }
    }

    /// The bytes of the slot's file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut file = header::encode(Kind::KeySlot.number()).to_vec();
        file.extend(&self.clear);
        file.extend(self.sealed);
        let checksum = blake3::hash(&file);
        file.extend(checksum.as_bytes());
        file
    }

    /// The slot whose file has these bytes.
    ///
    /// # Errors
    /// `Damaged`, `NewerFormat`, `UnknownProtection`, `Renewed`, `Cost`.
    pub fn decode(id: KeySlotId, file: &[u8]) -> Result<Self, KeySlotError> {
        header::check(Kind::KeySlot.number(), file).map_err(|error| match error {
            HeaderError::Newer(version) => KeySlotError::NewerFormat(version),
            HeaderError::Foreign | HeaderError::Unexpected => KeySlotError::Damaged,
        })?;
        let (body, checksum) = file.split_last_chunk::<CHECKSUM_LEN>().ok_or(KeySlotError::Damaged)?;
        if blake3::hash(body) != *checksum {
            return Err(KeySlotError::Damaged);
        }
        let (front, sealed) = body.split_last_chunk().ok_or(KeySlotError::Damaged)?;
        let bytes = front.get(header::LEN..).ok_or(KeySlotError::Damaged)?;
        let clear: Clear =
            codec::decode(bytes, "key slot", MAX_LEN).map_err(|_which| KeySlotError::Damaged)?;
        if !is_first(&clear.epoch) {
            return Err(KeySlotError::Renewed);
        }
        let protection = clear.protection()?;
        if clear.label.len() > MAX_LABEL {
            return Err(KeySlotError::LongLabel);
        }
        Ok(Self {
            id,
            repository: clear.repository,
            protection,
            label: clear.label,
            created: clear.created,
            clear: bytes.to_vec(),
            sealed: *sealed,
        })
    }

    /// BLAKE3's derived key of the secret's key and the hash of the fields in the clear.
    fn wrapping_key(&self, secret: Option<&Secret>) -> Result<SealKey, KeySlotError> {
        let from = match (self.protection, secret) {
            (Protection::None, _) => Key32::new(blake3::derive_key("kitbag 2026-11 v1 no passphrase", b"")),
            (Protection::Argon2id { salt, cost }, Some(Secret::Passphrase(passphrase))) => {
                kdf::derive(passphrase, &salt, cost).ok_or(KeySlotError::NoMemory)?
            }
            (Protection::KeyFile, Some(Secret::Key(key))) => {
                Key32::new(blake3::derive_key("kitbag 2026-11 v1 key file", key.expose()))
            }
            _ => return Err(KeySlotError::SecretNeeded),
        };
        let mut hasher = blake3::Hasher::new_derive_key("kitbag 2026-11 v1 key slot");
        hasher.update(from.expose());
        hasher.update(blake3::hash(&self.clear).as_bytes());
        Ok(SealKey::new(Key32::new(hasher.finalize().into())))
    }

    fn context(&self) -> Context<'_> {
        Context { repository: self.repository, kind: Kind::KeySlot, file: self.id.as_bytes(), offset: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPOSITORY: RepositoryId = RepositoryId([5; 16]);
    const CREATED: Timestamp = Timestamp { secs: 1_796_000_000, nanos: 5 };

    fn passphrase(text: &str) -> Secret {
        Secret::Passphrase(Passphrase::new(text.into()))
    }

    fn key(byte: u8) -> Secret {
        Secret::Key(Key32::new([byte; 32]))
    }

    fn master() -> MasterKey {
        MasterKey::new(Key32::new([1; 32]))
    }

    fn slot(text: Option<&str>) -> KeySlot {
        let protection = text.map_or(Protection::None, |_| Protection::argon2id(Cost::TRIFLE));
        let text = text.map(passphrase);
        KeySlot::wrap(&master(), REPOSITORY, protection, text.as_ref(), "label", CREATED).unwrap()
    }

    fn opens(slot: &KeySlot, text: Option<&str>) -> Result<[u8; 32], KeySlotError> {
        slot.open(text.map(passphrase).as_ref()).map(|key| *key.expose())
    }

    #[test]
    fn a_slot_opens_after_a_round_trip() {
        for text in [None, Some("correct horse")] {
            let slot = slot(text);
            let read = KeySlot::decode(slot.id(), &slot.encode()).unwrap();
            assert_eq!(read, slot);
            assert_eq!(
                (read.label(), read.created(), read.needs_passphrase()),
                ("label", CREATED, text.is_some())
            );
            assert_eq!(opens(&read, text), Ok([1; 32]));
        }
    }

    #[test]
    fn a_mark_stands_for_all_slots() {
        let marks: BTreeSet<_> = [&[][..], &[1], &[2], &[1, 2]]
            .map(|ids| mark(&ids.iter().map(|id| KeySlotId([*id; 8])).collect()).to_string())
            .into();
        assert_eq!(marks.len(), 4);
        let document = include_str!("../../doc/format.md");
        let example = mark(&[KeySlotId([2; 8]), KeySlotId([1; 8])].into()).to_string();
        assert!(document.contains(&example), "{example} is not in doc/format.md");
    }

    #[test]
    fn a_wrong_passphrase_is_not_damage() {
        let slot = slot(Some("correct horse"));
        assert_eq!(opens(&slot, Some("battery staple")), Err(KeySlotError::WrongPassphrase));
        assert_eq!(opens(&slot, None), Err(KeySlotError::SecretNeeded));
        assert_eq!(slot.open(Some(&key(4))).map(|_| ()), Err(KeySlotError::SecretNeeded));
    }

    #[test]
    fn a_key_file_opens_what_it_closed() {
        let slot =
            KeySlot::wrap(&master(), REPOSITORY, Protection::KeyFile, Some(&key(4)), "", CREATED).unwrap();
        let read = KeySlot::decode(slot.id(), &slot.encode()).unwrap();
        assert!(read == slot && read.is_locked() && read.needs_key_file() && !read.needs_passphrase());
        assert!(read.takes(&key(5)) && !read.takes(&passphrase("x")));
        assert_eq!(read.open(Some(&key(4))).map(|key| *key.expose()), Ok([1; 32]));
        assert_eq!(read.open(Some(&key(5))).map(|_| ()), Err(KeySlotError::WrongKey));
        assert_eq!(opens(&read, Some("x")), Err(KeySlotError::SecretNeeded));
        let bare = KeySlot::wrap(&master(), REPOSITORY, Protection::KeyFile, None, "", CREATED);
        assert_eq!(bare, Err(KeySlotError::SecretNeeded));
    }

    #[test]
    fn every_flip_and_every_cut_is_damage() {
        let slot = slot(Some("correct horse"));
        let file = slot.encode();
        for at in 0..file.len() {
            let mut flipped = file.clone();
            flipped[at] ^= 0x80;
            let expected = if at == 8 { KeySlotError::NewerFormat(0x81) } else { KeySlotError::Damaged };
            assert_eq!(KeySlot::decode(slot.id(), &flipped), Err(expected), "byte {at}");
            assert_eq!(KeySlot::decode(slot.id(), &file[..at]), Err(KeySlotError::Damaged));
        }
    }

    #[test]
    fn it_opens_under_no_other_id_or_repository() {
        let slot = slot(None);
        let elsewhere = tampered(&slot, |clear| clear.repository = RepositoryId([6; 16])).unwrap();
        assert_eq!(opens(&elsewhere, None), Err(KeySlotError::Damaged));
        let moved = KeySlot::decode(KeySlotId([0; 8]), &slot.encode()).unwrap();
        assert_eq!(opens(&moved, None), Err(KeySlotError::Damaged));
    }

    /// The file after a change to its fields by somebody who knows to repair the checksum.
    fn tampered(slot: &KeySlot, change: impl FnOnce(&mut Clear)) -> Result<KeySlot, KeySlotError> {
        let mut clear = Clear::new(slot.repository(), slot.protection(), slot.label(), slot.created());
        change(&mut clear);
        KeySlot::decode(slot.id(), &KeySlot { clear: clear.encode(), ..slot.clone() }.encode())
    }

    #[test]
    fn tampered_fields_do_not_open() {
        let slot = slot(Some("x"));
        let relabelled = tampered(&slot, |clear| clear.label = "other".into()).unwrap();
        assert_eq!(opens(&relabelled, Some("x")), Err(KeySlotError::WrongPassphrase));
        let cheaper = tampered(&slot, |clear| clear.memory_kib += 8).unwrap();
        assert_eq!(opens(&cheaper, Some("x")), Err(KeySlotError::WrongPassphrase));
    }

    #[test]
    fn a_memory_bomb_is_refused_at_reading() {
        let bomb = tampered(&slot(Some("x")), |clear| clear.memory_kib = 1 << 30);
        assert!(matches!(bomb, Err(KeySlotError::Cost(_))));
        let forever = tampered(&slot(Some("x")), |clear| clear.passes = u32::MAX);
        assert!(matches!(forever, Err(KeySlotError::Cost(_))));
        let renewed = tampered(&slot(Some("x")), |clear| clear.epoch = 1);
        assert_eq!(renewed, Err(KeySlotError::Renewed));
        assert!(KeySlotError::Renewed.is_from_later() && !KeySlotError::Damaged.is_from_later());
        let unknown = tampered(&slot(Some("x")), |clear| clear.protection = 7);
        assert_eq!(unknown, Err(KeySlotError::UnknownProtection(7)));
    }

    /// The files of the golden slots' tests hold this.
    fn golden(id: u8, protection: Protection, secret: Option<&Secret>) -> Vec<u8> {
        let id = KeySlotId([id; 8]);
        let clear = Clear::new(REPOSITORY, protection, "label", CREATED).encode();
        let mut slot = KeySlot {
            id,
            repository: REPOSITORY,
            protection,
            label: "label".into(),
            created: CREATED,
            clear,
            sealed: [0; SEALED_LEN],
        };
        let key = slot.wrapping_key(secret).unwrap();
        let mut sealed = [&[0; 24][..], master().expose()].concat();
        key.seal_golden(&slot.context(), &mut sealed, 0, [9; 24]);
        slot.sealed = sealed.try_into().unwrap();
        slot.encode()
    }

    #[test]
    fn golden_in_the_clear() {
        let file = include_bytes!("../../testdata/format/v1/key-slot-none");
        assert_eq!(golden(1, Protection::None, None), file);
        assert_eq!(opens(&KeySlot::decode(KeySlotId([1; 8]), file).unwrap(), None), Ok([1; 32]));
    }

    #[test]
    fn golden_with_a_passphrase() {
        let file = include_bytes!("../../testdata/format/v1/key-slot-argon2id");
        let protection = Protection::Argon2id { salt: [2; SALT_LEN], cost: Cost::new(64, 2, 2).unwrap() };
        assert_eq!(golden(2, protection, Some(&passphrase("correct horse"))), file);
        let slot = KeySlot::decode(KeySlotId([2; 8]), file).unwrap();
        assert_eq!(opens(&slot, Some("correct horse")), Ok([1; 32]));
    }

    #[test]
    fn golden_with_a_key_file() {
        let file = include_bytes!("../../testdata/format/v1/key-slot-key-file");
        assert_eq!(golden(3, Protection::KeyFile, Some(&key(4))), file);
        let slot = KeySlot::decode(KeySlotId([3; 8]), file).unwrap();
        assert_eq!(slot.open(Some(&key(4))).map(|key| *key.expose()), Ok([1; 32]));
    }
}
