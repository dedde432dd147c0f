//! Where pages and lists end: content-defined, so that equal neighbours make equal pages whatever stands elsewhere.

/// Decides, entry by entry, where a page ends.
///
/// A page ends behind an entry whose hash has enough zero bits, so about every `AVERAGE` entries; at the latest when it has grown too large.
/// Behind such an end the decisions do not depend on what came before.
#[derive(Debug, Clone)]
pub struct Cutter {
    shift: u32,
    mask: u64,
    entries: usize,
    bytes: usize,
}

/// Most entries of a page.
pub const MAX_ENTRIES: usize = 1024;

/// About how many bytes a page may grow to, by the caller's weights.
pub const MAX_BYTES: usize = 256 << 10;

impl Cutter {
    /// Cuts leaf pages (level 0, about 256 entries) or index pages and lists of level 1 and more (about 128).
    #[must_use]
    pub fn new(level: u32) -> Self {
        // Other bits on each level: what ended a page below would otherwise end this one too.
        let (shift, mask) = if level == 0 { (0, 0xff) } else { ((8 * level).min(56), 0x7f) };
        Self { shift, mask, entries: 0, bytes: 0 }
    }

    /// Takes the next entry by its hash and weight (about how many bytes it will take); whether the page ends behind it.
    pub fn push(&mut self, hash: u64, weight: usize) -> bool {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(weight);
        let ends =
            (hash >> self.shift) & self.mask == 0 || self.entries >= MAX_ENTRIES || self.bytes >= MAX_BYTES;
        if ends {
            self.restart();
        }
        ends
    }

    /// Begins a page here, whatever came before.
    pub fn restart(&mut self) {
        self.entries = 0;
        self.bytes = 0;
    }

    /// Whether a page begins here.
    #[must_use]
    pub fn at_start(&self) -> bool {
        self.entries == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pages(hashes: &[u64]) -> Vec<Vec<u64>> {
        let mut cutter = Cutter::new(0);
        let mut pages = vec![Vec::new()];
        for &hash in hashes {
            if let Some(page) = pages.last_mut() {
                page.push(hash);
            }
            if cutter.push(hash, 100) {
                pages.push(Vec::new());
            }
        }
        pages
    }

    fn spread(seed: u64) -> u64 {
        (seed ^ 0x5555).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(29)
    }

    proptest! {
        #[test]
        fn one_more_entry_changes_few_pages(at in 0usize..5000, extra: u64) {
            let before: Vec<u64> = (0..5000).map(spread).collect();
            let mut after = before.clone();
            after.insert(at, extra);
            let old = pages(&before);
            let new = pages(&after);
            let changed = new.iter().filter(|page| !old.contains(page)).count();
            prop_assert!(changed <= 3, "{} pages changed", changed);
        }
    }

    #[test]
    fn pages_are_bounded() {
        assert!(pages(&[1; 5000]).iter().all(|page| page.len() <= MAX_ENTRIES));
        let mut cutter = Cutter::new(0);
        assert!(cutter.push(1, MAX_BYTES));
    }
}
