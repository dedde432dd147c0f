//! Bytes as files have them: words, and binaries that compress a little.

use crate::random::Random;

const SYLLABLES: [&str; 32] = [
    "ba", "con", "de", "er", "fi", "ge", "ho", "in", "ka", "la", "men", "no", "o", "per", "qua", "re", "sa",
    "ti", "un", "ver", "wa", "xi", "ya", "zu", "tion", "ing", "ent", "al", "ous", "str", "th", "ment",
];

/// Lines of words; common words are common, so it compresses about as source code and letters do.
pub(super) fn words(random: &mut Random, buffer: &mut [u8]) {
    let mut line = Vec::with_capacity(128);
    for target in buffer.chunks_mut(80) {
        line.clear();
        while line.len() < target.len() {
            word(random, &mut line);
            line.push(b' ');
        }
        target.copy_from_slice(line.get(..target.len()).unwrap_or_default());
        if let Some(last) = target.last_mut() {
            *last = b'\n';
        }
    }
}

/// A word of two to four syllables, from a vocabulary in which the first words are much more frequent.
fn word(random: &mut Random, line: &mut Vec<u8>) {
    let rank = random.below(3000).saturating_mul(random.below(3000)) / 3000;
    let mut choice = Random::new(rank);
    for _ in 0..2 + choice.below(3) {
        let place = usize::try_from(choice.below(32)).unwrap_or_default();
        line.extend_from_slice(SYLLABLES.get(place).copied().unwrap_or_default().as_bytes());
    }
}

/// Records with fixed and running parts, as in libraries and databases: compresses to about half.
pub(super) fn records(random: &mut Random, buffer: &mut [u8]) {
    for (number, record) in (0u32..).zip(buffer.chunks_mut(32)) {
        let mut whole = [0; 32];
        let (random_part, rest) = whole.split_at_mut(14);
        random.fill(random_part);
        let (running, _zeros) = rest.split_at_mut(4);
        running.copy_from_slice(&number.to_le_bytes());
        record.copy_from_slice(whole.get(..record.len()).unwrap_or_default());
    }
}
