//! The command line itself: help, version, and what cannot be meant.

mod common;

use common::Kitbag;

#[test]
fn help_goes_to_standard_output() {
    let help = Kitbag::new().run(["--help"]).code(0);
    assert!(help.stdout.contains("Usage: kitbag") && help.stdout.contains("Exit codes:"), "{}", help.stdout);
    assert_eq!(help.stderr, "");
    for command in [
        "init",
        "backup",
        "generations",
        "ls",
        "restore",
        "cat",
        "clients",
        "fsck",
        "cache",
        "forget",
        "tag",
        "remove-client",
        "verify",
        "sessions",
        "config",
        "key",
    ] {
        assert!(help.stdout.contains(command), "{command}");
        assert!(Kitbag::new().run([command, "--help"]).code(0).stdout.contains("--repository"));
    }
}

#[test]
fn the_version_is_told() {
    assert_eq!(
        Kitbag::new().run(["--version"]).code(0).stdout,
        format!("kitbag {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn what_cannot_be_meant_ends_with_2() {
    let lines: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["backup"],
        &["restore"],
        &["generations", "--no-such-option"],
        &["backup", ".", "--encryption", "none"],
        &["backup", ".", "--compression", "9"],
        &["generations", "--cache-size", "much"],
        &["generations", "--client-name", ""],
        &["generations", "--ssh-option", "Port"],
        &["generations", "--transport", "carrier-pigeon"],
    ];
    for line in lines {
        let outcome = Kitbag::new().run(line.iter()).code(2);
        assert_eq!(outcome.stdout, "", "{line:?}");
        assert_ne!(outcome.stderr, "", "{line:?}");
    }
}

#[test]
fn a_repository_must_be_named() {
    let outcome = Kitbag::new().run(["generations"]).code(2);
    outcome.says(&["no repository was named", "KITBAG_REPOSITORY"]);
}
