//! The examples of `doc/format.md` are the golden files that the code is tested with.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

use std::fs;
use std::path::Path;

/// The bytes of the block of hexadecimal digits that follows the name of each golden file.
fn examples(document: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for piece in document.split("`testdata/format/v1/").skip(1) {
        let Some((name, rest)) = piece.split_once("`:\n\n```hex\n") else { continue };
        let digits: String = rest.chars().take_while(|c| *c != '`').filter(|c| !c.is_whitespace()).collect();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex");
        found.push((name.to_owned(), (0..digits.len()).step_by(2).map(byte).collect()));
    }
    found
}

#[test]
fn the_examples_are_the_golden_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = examples(&fs::read_to_string(root.join("doc/format.md")).unwrap());
    assert!(examples.len() >= 5, "{} examples", examples.len());
    for (name, bytes) in examples {
        let golden = fs::read(root.join("testdata/format/v1").join(&name)).unwrap();
        assert_eq!(bytes, golden, "{name}");
    }
}
