//! The house plan, checked: reads the sources and fails on an import from a room above or beside, on a crate used outside
//! its home, on files that have grown too long, and on documents that no longer say what is there.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules, lowest layer first. A module may use those of the lines above, and in layers where order counts
/// also those to its left; in the others the modules of one line never use each other.
const LAYERS: &[(Order, &[&str])] = &[
    (Order::Counts, &["base", "monitor"]),
    (Order::Apart, &["chunker", "compress", "crypto", "entry", "sftp"]),
    (Order::Counts, &["cache", "store", "live"]),
    (Order::Counts, &["sealed", "bag", "condemned", "dir", "index", "generation", "contents"]),
    (Order::Counts, &["repo", "reach"]),
    (Order::Apart, &["backup", "restore", "verify", "fsck", "forget", "gc", "mount", "look", "serve"]),
    (Order::Apart, &["cli"]),
];

#[derive(PartialEq)]
enum Order {
    Counts,
    Apart,
}

/// Crates (and one keyword) that have a home: no file elsewhere may name them.
const HOMES: &[(&str, &[&str])] = &[
    ("ssh2::", &["src/sftp/"]),
    ("libssh2_sys::", &["src/sftp/transport/libssh2.rs", "src/sftp/transport/chacha.rs"]),
    ("tokio::", &["src/sftp/"]),
    ("memmap2::", &["src/index/map.rs"]),
    ("unsafe {", &["src/index/map.rs", "src/sftp/transport/libssh2.rs", "src/sftp/transport/chacha.rs"]),
    ("serde_cbor::", &["src/base/codec.rs"]),
    ("getrandom::", &["src/base/"]),
    ("zstd::", &["src/compress.rs"]),
    ("fastcdc::", &["src/chunker/"]),
    ("argon2::", &["src/crypto/"]),
    ("chacha20poly1305::", &["src/crypto/"]),
    ("chacha20::", &["src/sftp/transport/chacha.rs"]),
    ("poly1305::", &["src/sftp/transport/chacha.rs"]),
    ("ignore::", &["src/live/"]),
    ("nix::", &["src/live/", "src/cli/passphrase.rs"]),
    ("clap::", &["src/cli/"]),
    ("clap_complete::", &["src/cli/commands/man.rs"]),
    ("clap_mangen::", &["src/cli/man/"]),
    ("toml::", &["src/cli/"]),
    ("globset::", &["src/look/"]),
    ("tar::", &["src/look/tar.rs"]),
    ("fuser::", &["src/mount/fuse/"]),
    ("indicatif::", &["src/cli/screen.rs"]),
    ("rpassword::", &["src/cli/ask.rs"]),
    ("signal_hook::", &["src/cli/signals.rs"]),
    ("tracing_subscriber::", &["src/cli/"]),
];

/// Lines of code, comments not counted, that a file may have before its tests.
const LONGEST: usize = 500;

/// Packages that `Cargo.lock` may name.
const MOST_PACKAGES: usize = 250;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files_below(dir: &str, extension: &str) -> Vec<PathBuf> {
    fn collect(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, extension, found);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(&root().join(dir), extension, &mut found);
    found.sort();
    found
}

/// A source file without its tests and comments, and where it stands.
struct Source {
    /// Relative to the package.
    path: String,
    /// The lines of code before the tests.
    code: Vec<String>,
}

fn sources() -> Vec<Source> {
    let all = files_below("src", "rs");
    assert!(all.len() > 20, "only {} source files found", all.len());
    all.iter()
        .map(|path| Source {
            path: path.strip_prefix(root()).expect("below").to_str().expect("UTF-8").to_owned(),
            code: read(path)
                .lines()
                .take_while(|line| !line.trim_start().starts_with("#[cfg(test)]"))
                .map(|line| line.split_once("//").map_or(line, |(code, _)| code).trim().to_owned())
                .filter(|line| !line.is_empty())
                .collect(),
        })
        .collect()
}

impl Source {
    /// The top-level module, and how many `super::` lead out of it; `None` for `main.rs` and `lib.rs`.
    fn room(&self) -> Option<(&str, usize)> {
        let inside = self.path.strip_prefix("src/")?;
        let (room, depth) = match inside.split_once('/') {
            Some((room, rest)) => {
                (room, rest.matches('/').count() + if rest.ends_with("mod.rs") { 1 } else { 2 })
            }
            None => (inside.strip_suffix(".rs")?, 1),
        };
        (!matches!(room, "main" | "lib")).then_some((room, depth))
    }

    /// The top-level modules that it names.
    fn imports(&self, depth: usize) -> BTreeSet<String> {
        let text = self.code.join(" ");
        let mut found = BTreeSet::new();
        for start in ["crate::".to_owned(), "super::".repeat(depth)] {
            for (at, _) in text.match_indices(&start) {
                if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                match text[at + start.len()..].strip_prefix('{') {
                    None => drop(found.insert(first_word(&text[at + start.len()..]))),
                    Some(group) => found.extend(members(group).iter().map(|member| first_word(member))),
                }
            }
        }
        found
    }
}

/// The members of a `{…}` group whose opening brace was taken off.
fn members(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (1, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == ',') {
            found.push(group[start..at].trim());
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Layer and position of a module.
fn place(room: &str) -> Option<(usize, usize)> {
    LAYERS
        .iter()
        .enumerate()
        .find_map(|(layer, (_, rooms))| Some((layer, rooms.iter().position(|other| *other == room)?)))
}

fn may_use(from: &str, to: &str) -> bool {
    match (place(from), place(to)) {
        // What is no module is an item of the crate's root, of which there are none.
        (_, None) => false,
        (None, _) => false,
        (Some((upper, here)), Some((lower, there))) => {
            from == to
                || lower < upper
                || (lower == upper && LAYERS[lower].0 == Order::Counts && there < here)
        }
    }
}

#[test]
fn every_module_uses_only_what_lies_below() {
    let mut faults = Vec::new();
    for source in sources() {
        // Tests may use whatever there is, beside the code or in a file of their own.
        if source.path.ends_with("/tests.rs") {
            continue;
        }
        let Some((room, depth)) = source.room() else { continue };
        assert!(place(room).is_some(), "{}: {room} stands in no layer", source.path);
        for used in source.imports(depth) {
            if !may_use(room, &used) {
                faults.push(format!("{} uses {used}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "imports against the house plan:\n{}", faults.join("\n"));
}

#[test]
fn crates_stay_at_home() {
    let mut faults = Vec::new();
    for source in sources() {
        for (name, homes) in HOMES {
            let named = source.code.iter().any(|line| {
                line.match_indices(name).any(|(at, _)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
                })
            });
            if named && !homes.iter().any(|home| source.path.starts_with(home)) {
                faults.push(format!("{} names {name}, whose home is {}", source.path, homes.join(", ")));
            }
        }
    }
    assert!(faults.is_empty(), "crates away from home:\n{}", faults.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<_> = sources()
        .into_iter()
        .filter(|source| source.code.len() > LONGEST)
        .map(|source| format!("{}: {} lines of code", source.path, source.code.len()))
        .collect();
    assert!(long.is_empty(), "split these:\n{}", long.join("\n"));
}

#[test]
fn the_lock_file_stays_small() {
    let packages = read(&root().join("Cargo.lock")).matches("[[package]]").count();
    assert!(packages <= MOST_PACKAGES, "Cargo.lock names {packages} packages");
}

#[test]
fn every_direct_dependency_is_justified() {
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().expect("TOML");
    let text = read(&root().join("doc/architecture.md"));
    let unjustified: Vec<_> = ["dependencies", "dev-dependencies"]
        .iter()
        .flat_map(|section| manifest[*section].as_table().expect("a table").keys())
        .filter(|name| !text.contains(&format!("| `{name}` |")))
        .collect();
    assert!(unjustified.is_empty(), "doc/architecture.md does not say why there is {unjustified:?}");
}

#[test]
fn paths_named_in_documents_exist() {
    let tops = ["src/", "tests/", "doc/", "yarns/", "testdata/", "obbench/", "debian/", "fuzz/", "tools/"];
    let mut missing = Vec::new();
    let mut documents = files_below("doc", "md");
    documents.extend(["README.md", "NEWS.md"].map(|name| root().join(name)));
    for document in documents {
        // Every second piece between backticks is code.
        for path in read(&document).split('`').skip(1).step_by(2) {
            let is_path = tops.iter().any(|top| path.starts_with(top));
            let is_pattern = path.contains(|c: char| c.is_whitespace() || "*<>{}…".contains(c));
            if is_path && !is_pattern && !root().join(path).exists() {
                missing.push(format!("{}: {path}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "documents name what is not there:\n{}", missing.join("\n"));
}

#[test]
fn the_reader_of_imports_sees_all_forms() {
    let source = |path: &str, code: &str| Source { path: path.to_owned(), code: vec![code.to_owned()] };
    let seen = |path: &str, code: &str| {
        let source = source(path, code);
        let (_, depth) = source.room().expect("a room");
        source.imports(depth).into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(seen("src/bag/mod.rs", "use crate::base::id::BagId; crate::store::x()"), "base store");
    assert_eq!(seen("src/bag/mod.rs", "use crate::{base::{id, time}, cli};"), "base cli");
    assert_eq!(seen("src/bag/block.rs", "use super::super::repo::Repo; use super::format;"), "repo");
    assert_eq!(seen("src/compress.rs", "super::cli::run()"), "cli");
    assert_eq!(seen("src/bag/mod.rs", "other_crate::cli::run()"), "");
    assert!(may_use("dir", "bag") && !may_use("bag", "dir") && may_use("gc", "reach"));
    assert!(!may_use("backup", "restore") && !may_use("crypto", "entry") && !may_use("base", "cli"));
}
