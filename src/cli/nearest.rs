//! What somebody most likely meant who wrote a word that is not known.

/// The known word that is nearest to `word`, if one is near enough to be a mistyped form of it.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (word.chars().count() / 3).max(1);
    let near = known.into_iter().map(|one| (distance(word, one), one));
    near.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, one)| one)
}

/// How many letters must be put in, left out, changed, or swapped with their neighbour, to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (fold(one), fold(other));
    // Rows of the table for the prefix of `one` two letters shorter, one letter shorter, and this one.
    let mut before = vec![0; other.len() + 1];
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut row = vec![at + 1; other.len() + 1];
        for (column, wanted) in other.iter().enumerate() {
            let mut least = (row[column] + 1)
                .min(above[column + 1] + 1)
                .min(above[column] + usize::from(letter != wanted));
            let is_swapped = at > 0 && column > 0 && one[at - 1] == *wanted && other[column - 1] == *letter;
            if is_swapped {
                least = least.min(before[column - 1] + 1);
            }
            row[column + 1] = least;
        }
        before = std::mem::replace(&mut above, row);
    }
    above[other.len()]
}

fn fold(word: &str) -> Vec<char> {
    word.chars().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (one, other, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("laptop", "laptpo", 1),
            ("Laptop", "lapdog", 2),
            ("ab", "ba", 1),
            ("x", "yz", 2),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn only_what_is_near_is_meant() {
        let known = ["laptop", "desktop", "ada-laptop"];
        assert_eq!(nearest("lptop", known), Some("laptop"));
        assert_eq!(nearest("destkop", known), Some("desktop"));
        assert_eq!(nearest("server", known), None);
        assert_eq!(nearest("", known), None);
    }
}
