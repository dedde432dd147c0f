//! The configuration of a repository: a small file that is no secret.
//!
//! ```text
//! offset  bytes
//!      0  10     header (base::header), kind 17
//!     10         CBOR map: the fields of [`Config`]
//!            32  keyed BLAKE3 of all that precedes, under the configuration key: checked when a key slot is open
//!            32  BLAKE3 of all that precedes: checked at reading
//! ```

use serde::{Deserialize, Serialize};

use crate::base::codec;
use crate::base::header::{self, HeaderError};
use crate::base::id::RepositoryId;
use crate::base::text;
use crate::base::time::Timestamp;
use crate::chunker::Limits;
use crate::crypto::{ConfigKey, Kind};

/// The longest file that can be a configuration.
pub const MAX_LEN: usize = 64 << 10;

/// The features that this version knows: it opens no repository that requires another.
pub const KNOWN_FEATURES: [&str; 0] = [];

const HASH_LEN: usize = 32;

/// What all who use a repository must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Which repository it is.
    pub repository: RepositoryId,
    /// Sizes of chunks.
    pub limits: Limits,
    /// Features without which the repository cannot be used.
    pub required: Vec<String>,
    /// Features that may be ignored.
    pub optional: Vec<String>,
    /// When it was made.
    pub created: Timestamp,
}

/// Why a file is no configuration that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is something else.
    #[error("the file config is not that of a kitbag repository")]
    Foreign,
    /// Written by a later kitbag.
    #[error("the repository has format version {0}, which needs a newer kitbag")]
    NewerFormat(u8),
    /// Something is required that this version does not know.
    #[error("the repository requires the feature {0}, which needs a newer kitbag")]
    UnknownFeature(String),
    /// The bytes are not those that were written.
    #[error("the file config is damaged")]
    Damaged,
}

/// A configuration as read, for which no key has vouched yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedConfig {
    config: Config,
    body: Vec<u8>,
    mac: [u8; HASH_LEN],
}

impl Config {
    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self, key: &ConfigKey) -> Vec<u8> {
        let mut file = header::encode(Kind::Config.number()).to_vec();
        file.extend(codec::encode(self));
        let mac = key.mac(&file);
        file.extend(mac);
        let checksum = blake3::hash(&file);
        file.extend(checksum.as_bytes());
        file
    }

    /// The configuration in the bytes of a file.
    ///
    /// # Errors
    /// When they are none, or one that this version cannot use.
    pub fn decode(file: &[u8]) -> Result<UnverifiedConfig, ConfigError> {
        header::check(Kind::Config.number(), file).map_err(|error| match error {
            HeaderError::Foreign => ConfigError::Foreign,
            HeaderError::Newer(version) => ConfigError::NewerFormat(version),
            HeaderError::Unexpected => ConfigError::Damaged,
        })?;
        let (summed, checksum) = file.split_last_chunk::<HASH_LEN>().ok_or(ConfigError::Damaged)?;
        if blake3::hash(summed) != *checksum {
            return Err(ConfigError::Damaged);
        }
        let (body, mac) = summed.split_last_chunk::<HASH_LEN>().ok_or(ConfigError::Damaged)?;
        let fields = body.get(header::LEN..).ok_or(ConfigError::Damaged)?;
        let config: Self =
            codec::decode(fields, "configuration", MAX_LEN).map_err(|_which| ConfigError::Damaged)?;
        if let Some(unknown) = config.required.iter().find(|name| !KNOWN_FEATURES.contains(&name.as_str())) {
            return Err(ConfigError::UnknownFeature(text::escape(unknown.as_bytes())));
        }
        config.limits.checked().map_err(|_which| ConfigError::Damaged)?;
        Ok(UnverifiedConfig { config, body: body.to_vec(), mac: *mac })
    }
}

impl UnverifiedConfig {
    /// Which repository it says it is: enough to try key slots.
    #[must_use]
    pub fn repository(&self) -> RepositoryId {
        self.config.repository
    }

    /// The configuration, if whoever wrote it had the key.
    ///
    /// # Errors
    /// `Damaged` when they had not.
    pub fn verify(self, key: &ConfigKey) -> Result<Config, ConfigError> {
        if key.verifies(&self.body, &self.mac) { Ok(self.config) } else { Err(ConfigError::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::secret::Key32;
    use crate::crypto::{Keys, MasterKey};

    fn keys(byte: u8) -> Keys {
        Keys::derive(&MasterKey::new(Key32::new([byte; 32])))
    }

    fn config() -> Config {
        Config {
            repository: RepositoryId([5; 16]),
            limits: Limits::default(),
            required: vec![],
            optional: vec!["colours".into()],
            created: Timestamp { secs: 1_796_000_000, nanos: 5 },
        }
    }

    fn encoded(config: &Config) -> Vec<u8> {
        config.encode(keys(1).config())
    }

    #[test]
    fn what_is_encoded_decodes() {
        let read = Config::decode(&encoded(&config())).unwrap();
        assert_eq!(read.repository(), config().repository);
        assert_eq!(read.verify(keys(1).config()), Ok(config()));
    }

    #[test]
    fn golden() {
        let golden = include_bytes!("../../testdata/format/v1/config");
        assert_eq!(encoded(&config()), golden);
        assert_eq!(Config::decode(golden).unwrap().verify(keys(1).config()), Ok(config()));
    }

    #[test]
    fn who_has_not_the_key_is_found_out() {
        let swapped = Config { limits: Limits { min: 64, avg: 256, max: 1024 }, ..config() };
        let read = Config::decode(&swapped.encode(keys(2).config())).unwrap();
        assert_eq!(read.verify(keys(1).config()), Err(ConfigError::Damaged));
    }

    #[test]
    fn failures_are_told_apart() {
        assert_eq!(Config::decode(b"[core]\n\tbare = true\n"), Err(ConfigError::Foreign));
        assert_eq!(Config::decode(b""), Err(ConfigError::Foreign));
        let mut newer = encoded(&config());
        newer[8] = 2;
        assert_eq!(Config::decode(&newer), Err(ConfigError::NewerFormat(2)));
        let future = Config { required: vec!["time travel\n".into()], ..config() };
        let expected = ConfigError::UnknownFeature("time travel\\n".into());
        assert_eq!(Config::decode(&encoded(&future)), Err(expected));
        let odd = Config { limits: Limits { min: 1, avg: 0, max: 7 }, ..config() };
        assert_eq!(Config::decode(&encoded(&odd)), Err(ConfigError::Damaged));
    }

    #[test]
    fn every_flip_and_every_cut_is_noticed() {
        let file = encoded(&config());
        for at in 0..file.len() {
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert!(Config::decode(&flipped).is_err(), "byte {at}");
            assert!(Config::decode(&file[..at]).is_err(), "{at} bytes");
        }
    }
}
