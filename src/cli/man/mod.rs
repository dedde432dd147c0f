//! The manual pages: made from the definition of the command line, and what was written by hand beside it (`doc/man/`). The page of the format
//! is its document.

mod markdown;

use std::io;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use super::args::Args;

/// A page.
#[derive(Debug)]
pub struct Page {
    /// Its section: 1 or 5.
    pub section: u8,
    /// Its name, without section.
    pub name: String,
    /// The page, in the language of man(7).
    pub text: Vec<u8>,
}

/// What was written by hand: sections that follow those of the definition.
const BY_HAND: &[(&str, &str)] = &[
    ("kitbag", include_str!("../../../doc/man/kitbag.md")),
    ("kitbag-backup", include_str!("../../../doc/man/backup.md")),
    ("kitbag-forget", include_str!("../../../doc/man/forget.md")),
    ("kitbag-gc", include_str!("../../../doc/man/gc.md")),
    ("kitbag-mount", include_str!("../../../doc/man/mount.md")),
    ("kitbag-restore", include_str!("../../../doc/man/restore.md")),
    ("kitbag-serve", include_str!("../../../doc/man/serve.md")),
];

/// The date that pages bear: that of the version in `Cargo.toml`.
const DATE: &str = "2026-11-30";

const FORMAT: &str = include_str!("../../../doc/format.md");

/// All pages: the program's, one for each command, and the format's.
///
/// # Errors
/// None that can happen: the pages are written into memory.
pub fn pages() -> io::Result<Vec<Page>> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    collect(&command, true, &mut pages)?;
    pages.push(format());
    Ok(pages)
}

fn collect(command: &Command, is_top: bool, pages: &mut Vec<Page>) -> io::Result<()> {
    pages.push(page(command, is_top)?);
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    for command in below {
        collect(command, false, pages)?;
    }
    Ok(())
}

fn page(command: &Command, is_top: bool) -> io::Result<Page> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    // The common options are told once, with the program.
    let own = |arg: clap::Arg| {
        let is_common =
            !is_top && (arg.is_global_set() || arg.get_id() == "help" || arg.get_id() == "version");
        arg.hide(is_common)
    };
    let described = command.clone().mut_args(own);
    let man = Man::new(described)
        .title(name.to_uppercase())
        .section("1")
        .date(DATE)
        .manual("kitbag")
        .source(version());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if let Some(more) = command.get_after_help().filter(|_| !is_top) {
        text.extend(markdown::paragraphs(&more.to_string()).into_bytes());
    }
    let shows = |arg: &clap::Arg| !arg.is_hide_set() && (is_top || !arg.is_global_set());
    let has_own =
        command.get_arguments().any(|arg| shows(arg) && arg.get_id() != "help" && arg.get_id() != "version");
    if has_own {
        man.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if !is_top {
        text.extend(markdown::section(
            "Common options",
            "`--repository`, `--json`, `-v` and others are those of **kitbag**(1).",
        ));
    }
    if let Some((_, by_hand)) = BY_HAND.iter().find(|(title, _)| *title == name) {
        text.extend(markdown::sections(by_hand).into_bytes());
    }
    if !is_top {
        text.extend(markdown::section("See also", "**kitbag**(1), **kitbag-format**(5)"));
    }
    Ok(Page { section: 1, name, text })
}

fn format() -> Page {
    let name = "kitbag-format";
    let mut text = format!(".TH KITBAG-FORMAT 5 {DATE} \"{}\" kitbag\n", version());
    text.push_str(".SH NAME\nkitbag\\-format \\- what a repository of kitbag holds\n.SH DESCRIPTION\n");
    // The title is the name above, and the contents are what a pager is for.
    let body = FORMAT.split_once('\n').map_or(FORMAT, |(_, body)| body);
    let kept: Vec<_> = body.split("\n\n").filter(|block| !block.starts_with("Contents:")).collect();
    text.push_str(&markdown::sections(&kept.join("\n\n")));
    text.push_str(&markdown::section_text("See also", "**kitbag**(1)"));
    Page { section: 5, name: name.to_owned(), text: text.into_bytes() }
}

fn version() -> String {
    format!("kitbag {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_what_is_written_by_hand_has_a_place() {
        let pages = pages().unwrap();
        let names: Vec<_> = pages.iter().map(|page| page.name.as_str()).collect();
        for name in ["kitbag", "kitbag-backup", "kitbag-key-add", "kitbag-serve", "kitbag-format"] {
            assert!(names.contains(&name), "{names:?}");
        }
        for (name, _) in BY_HAND {
            assert!(names.contains(name), "{name}");
        }
        let text = |name: &str| {
            let page = pages.iter().find(|page| page.name == name).unwrap();
            String::from_utf8(page.text.clone()).unwrap()
        };
        assert!(text("kitbag-backup").contains("exclude\\-caches"));
        assert!(!text("kitbag-backup").contains("\\-\\-link\\-timeout"), "a common option");
        assert!(text("kitbag").contains("\\-\\-link\\-timeout"));
        assert!(text("kitbag").contains("EXIT STATUS"));
        // What a page refers to is there, but for what other packages bring.
        for page in &pages {
            let text = String::from_utf8(page.text.clone()).unwrap().replace("\\-", "-").replace("\\fR", "");
            for (at, _) in text.match_indices("(1)") {
                let start =
                    text[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '-').map_or(0, |at| at + 1);
                let named = text[start..at].trim_start_matches(['B', 'I']);
                let is_there = !named.starts_with("kitbag") || names.contains(&named);
                assert!(is_there, "{} refers to {named}", page.name);
            }
        }
        assert!(text("kitbag-format").contains(".SH SEALING"));
    }
}
