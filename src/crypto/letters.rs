//! A secret of 32 bytes as letters that a person can copy from paper.
//!
//! Five numbered lines of sixteen letters (Crockford's base 32, which has no I, L, O and U). The first four hold eight bytes each, the
//! fifth eight bytes of a hash of all of them; every line ends with a checksum of its own, so that a mistake is found in
//! the line where it was made, and the fifth finds lines of two keys put together.
//!
//! ```text
//! line n      base 32 of: bytes (8) ‖ checksum (2)
//! checksum    the first 2 bytes of derive("kitbag 2026-11 v1 key line", n (1 byte) ‖ bytes)
//! line 5      bytes: the first 8 of derive("kitbag 2026-11 v1 key check", secret)
//! ```

use zeroize::{Zeroize as _, Zeroizing};

use crate::base::secret::Key32;

/// Lines that a key has.
pub const LINES: usize = 5;

const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
/// Bytes of the secret, or of its hash, in a line.
const BYTES: usize = 8;
/// Letters of a line.
const LETTERS: usize = 16;

/// Why letters are no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LettersError {
    /// Nothing in the text looks like a line of a key.
    #[error("it holds no key: five lines, each a number from 1 to 5 and sixteen letters and digits")]
    None,
    /// A line is not there.
    #[error("line {0} of the key is missing")]
    Missing(usize),
    /// A line is there several times.
    #[error("line {0} of the key is there twice")]
    Twice(usize),
    /// A line is too short or too long.
    #[error("line {0} of the key has {1} letters and digits instead of {LETTERS}")]
    Length(usize, usize),
    /// Something that no key has.
    #[error("line {0} of the key holds {1:?}, which no key has")]
    Foreign(usize, char),
    /// Letters were mistaken for others.
    #[error("line {0} of the key has a mistake: compare it with the original letter by letter")]
    Mistake(usize),
    /// Each line is right, and they do not belong together.
    #[error("the lines are right one by one, and are not those of one key")]
    Mixed,
}

/// The lines, without their numbers: four groups of four letters each.
#[must_use]
pub fn encode(secret: &Key32) -> [Zeroizing<String>; LINES] {
    let mut bytes = Zeroizing::new([[0; BYTES]; LINES]);
    let (parts, _) = secret.expose().as_chunks::<BYTES>();
    let check = hash(secret);
    for (to, from) in bytes.iter_mut().zip(parts.iter().chain([&check])) {
        to.copy_from_slice(from);
    }
    let mut lines: [Zeroizing<String>; LINES] = Default::default();
    for ((line, bytes), number) in lines.iter_mut().zip(bytes.iter()).zip(1..) {
        **line = spell(number, bytes);
    }
    lines
}

/// The secret in a text. Only lines that begin with a number from 1 to 5 that stands by itself count; capitals do not, nor spaces and dashes,
/// and O, I and L are taken for the digits that they look like.
///
/// # Errors
/// The first mistake.
pub fn decode(text: &str) -> Result<Key32, LettersError> {
    let mut found: [Option<Zeroizing<[u8; BYTES]>>; LINES] = Default::default();
    // Editors put a mark of the byte order in front, which is not part of the text.
    for line in text.trim_start_matches('\u{feff}').lines() {
        let Some((number, letters)) = numbered(line) else { continue };
        let Some(place) = found.get_mut(number - 1) else { continue };
        if place.is_some() {
            return Err(LettersError::Twice(number));
        }
        *place = Some(read(number, letters)?);
    }
    if found.iter().all(Option::is_none) {
        return Err(LettersError::None);
    }
    let mut secret = Zeroizing::new([0; 4 * BYTES]);
    let (places, _) = secret.as_chunks_mut::<BYTES>();
    let mut places = places.iter_mut();
    let mut check = [0; BYTES];
    for (bytes, number) in found.iter().zip(1..) {
        let bytes = bytes.as_ref().ok_or(LettersError::Missing(number))?;
        places.next().unwrap_or(&mut check).copy_from_slice(&**bytes);
    }
    let secret = Key32::new(*secret);
    if hash(&secret) == check { Ok(secret) } else { Err(LettersError::Mixed) }
}

/// The number at the beginning of a line, and the rest of it.
fn numbered(line: &str) -> Option<(usize, &str)> {
    let line = line.trim_start();
    let rest = line.strip_prefix(['1', '2', '3', '4', '5'])?;
    let number = line.get(..1)?.parse().ok()?;
    let is_end = |letter: char| letter.is_whitespace() || ['.', ':', ')'].contains(&letter);
    rest.starts_with(is_end).then_some((number, rest.trim_start_matches(['.', ':', ')'])))
}

fn read(number: usize, letters: &str) -> Result<Zeroizing<[u8; BYTES]>, LettersError> {
    let mut bits = 0_u128;
    let mut count = 0;
    for letter in letters.chars().filter(|letter| !letter.is_whitespace() && *letter != '-') {
        let value = value(letter).ok_or(LettersError::Foreign(number, letter))?;
        bits = bits << 5 | u128::from(value);
        count += 1;
    }
    if count != LETTERS {
        return Err(LettersError::Length(number, count));
    }
    // Eighty bits: the last ten bytes of sixteen.
    let mut all = bits.to_be_bytes();
    bits.zeroize();
    let mut bytes = Zeroizing::new([0; BYTES]);
    bytes.iter_mut().zip(all.iter().skip(6)).for_each(|(to, from)| *to = *from);
    let sum = [all[14], all[15]];
    all.zeroize();
    if sum == checksum(number, &bytes) { Ok(bytes) } else { Err(LettersError::Mistake(number)) }
}

fn value(letter: char) -> Option<u8> {
    let letter = match letter.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        letter => letter,
    };
    let at = ALPHABET.iter().position(|one| char::from(*one) == letter)?;
    u8::try_from(at).ok()
}

fn spell(number: usize, bytes: &[u8; BYTES]) -> String {
    let mut bits = 0_u128;
    for byte in bytes.iter().chain(&checksum(number, bytes)) {
        bits = bits << 8 | u128::from(*byte);
    }
    let mut text = String::with_capacity(LETTERS + 3);
    for at in 0..LETTERS {
        if at > 0 && at % 4 == 0 {
            text.push(' ');
        }
        let index = usize::try_from(bits >> (5 * (LETTERS - 1 - at)) & 31).unwrap_or(0);
        text.extend(ALPHABET.get(index).map(|letter| char::from(*letter)));
    }
    text
}

fn checksum(number: usize, bytes: &[u8; BYTES]) -> [u8; 2] {
    let mut hasher = blake3::Hasher::new_derive_key("kitbag 2026-11 v1 key line");
    hasher.update(&[u8::try_from(number).unwrap_or(0)]).update(bytes);
    let hash = hasher.finalize();
    let [first, second, ..] = hash.as_bytes();
    [*first, *second]
}

fn hash(secret: &Key32) -> [u8; BYTES] {
    let hash = blake3::derive_key("kitbag 2026-11 v1 key check", secret.expose());
    let mut first = [0; BYTES];
    first.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(secret: [u8; 32]) -> String {
        let lines = encode(&Key32::new(secret));
        lines.iter().zip(1..).map(|(line, number)| format!("{number}  {}\n", **line)).collect()
    }

    fn decoded(text: &str) -> Result<[u8; 32], LettersError> {
        decode(text).map(|secret| *secret.expose())
    }

    const SECRET: [u8; 32] = [4; 32];

    #[test]
    fn the_example_of_the_format_document() {
        let document = include_str!("../../doc/format.md");
        for line in text(SECRET).lines() {
            assert!(
                document.contains(&format!("    {line}\n")),
                "{line} is not in doc/format.md:\n{}",
                text(SECRET)
            );
        }
    }

    #[test]
    fn it_is_read_however_it_is_typed() {
        let original = text(SECRET);
        let words = format!("Keep this.\n10 Downing Street\n\n{original}\n# 1 remark\n");
        let dashes = original.replace(' ', "-").replace("--", ": ");
        let backwards: Vec<_> = original.lines().rev().collect();
        for typed in [
            original.to_lowercase(),
            original.replace(' ', "\t"),
            original.replace(' ', "\u{a0}"),
            format!("\u{feff}{original}"),
            original.replace('0', "O").replace('1', "l").replacen("l ", "1 ", 1),
            words,
            dashes,
            backwards.join("\r\n"),
        ] {
            assert_eq!(decoded(&typed), Ok(SECRET), "{typed}");
        }
    }

    #[test]
    fn mistakes_name_their_line() {
        use LettersError as E;
        let original = text(SECRET);
        let lines: Vec<_> = original.lines().map(str::to_owned).collect();
        let with = |number: usize, line: &str| {
            let mut lines = lines.clone();
            lines[number - 1] = line.to_owned();
            decoded(&lines.join("\n"))
        };
        assert_eq!(with(3, ""), Err(E::Missing(3)));
        assert_eq!(with(3, &lines[1]), Err(E::Twice(2)));
        assert_eq!(with(2, &lines[1][..lines[1].len() - 1]), Err(E::Length(2, 15)));
        assert_eq!(with(4, &format!("{}0", lines[3])), Err(E::Length(4, 17)));
        assert_eq!(
            with(4, &lines[3].replacen(|c: char| c.is_ascii_uppercase(), "U", 1)),
            Err(E::Foreign(4, 'U'))
        );
        // Two lines that changed places.
        assert_eq!(with(1, &lines[1].replacen('2', "1", 1)), Err(E::Mistake(1)));
        let other = text([5; 32]);
        assert_eq!(with(2, other.lines().nth(1).unwrap()), Err(E::Mixed));
        assert_eq!(decoded("no key"), Err(E::None));
        assert_eq!(decoded(""), Err(E::None));
    }

    /// Each letter changed to each other, and each two neighbours swapped.
    #[test]
    fn single_mistakes_are_found_where_they_are() {
        let original = text([0xa5; 32]);
        for (number, line) in (1..).zip(original.lines()) {
            let letters: Vec<char> = line.chars().collect();
            for at in 3..letters.len() {
                if letters[at] == ' ' {
                    continue;
                }
                for other in ALPHABET.iter().map(|one| char::from(*one)).filter(|other| *other != letters[at])
                {
                    let mut changed = letters.clone();
                    changed[at] = other;
                    let changed: String = changed.iter().collect();
                    let typed = original.replace(line, &changed);
                    assert_eq!(decoded(&typed), Err(LettersError::Mistake(number)), "{typed}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_secret_comes_back(secret: [u8; 32]) {
            prop_assert_eq!(decoded(&text(secret)), Ok(secret));
        }

        #[test]
        fn no_text_is_too_strange(text: String) {
            let _ = decode(&text);
        }
    }
}
