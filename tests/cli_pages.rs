//! What packages are made with: man pages, and completions for shells.

mod common;

use std::fs;

use common::{Kitbag, files_below};

#[test]
fn man_pages_are_written_and_no_configuration_is_read() {
    let kitbag = Kitbag::new();
    kitbag.write("home/.config/kitbag/config.toml", "no = table");
    assert_eq!(kitbag.run(["man", "pages"]).code(0).stderr, "");
    let pages = files_below(&kitbag.path("pages"));
    assert!(pages.len() > 30, "{pages:?}");
    for page in &pages {
        let text = fs::read_to_string(page).expect("text");
        assert!(text.contains(".TH ") && text.contains(".SH NAME"), "{}", page.display());
    }
    assert!(kitbag.path("pages/man5/kitbag-format.5").exists());
    kitbag.run(["man", "pages/man5/kitbag-format.5/x"]).code(1).says(&["cannot write"]);
}

#[test]
fn completions_know_the_commands() {
    let kitbag = Kitbag::new();
    for shell in ["bash", "zsh", "fish"] {
        let outcome = kitbag.run(["completions", shell]).code(0);
        assert_eq!(outcome.stderr, "");
        for word in ["backup", "restore", "exclude-caches", "append-only"] {
            assert!(outcome.stdout.contains(word), "{shell}: {word}");
        }
    }
    kitbag.run(["completions", "tcsh"]).code(2);
    kitbag.run(["completions"]).code(2);
}
