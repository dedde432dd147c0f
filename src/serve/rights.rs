//! What a client may do, decided by names.
//!
//! A backup needs to make files under unfinished names, to fill them, to give them up, and to rename each to the name that it shall have for
//! ever. Unfinished names are those that hold a random id and lie in `sessions/` or end in `.part`; others are published. Only the names of `doc/format.md` that a
//! backup writes can be published: neither what makes a collector remove bags (`condemned/`, `moved/`), nor what other programs may act on.

use super::refusal::Refusal;
use super::spot::Spot;
use crate::base::id::{BagId, ClientId, GenerationId, KeySlotId, SegmentId, TagsId};
use crate::sftp::packet::{extension, flag};
use crate::store::layout::DIRECTORIES;

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Add, and read: what was published can be neither changed nor removed.
    AppendOnly,
    /// Read.
    ReadOnly,
    /// Everything but links, owners, and what lies outside the directory.
    Full,
}

/// What a name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// What is being written, under a name that only its writer knows.
    Unfinished,
    /// What a backup, or making a repository, publishes.
    Published,
    /// Anything else.
    Other,
}

impl Rights {
    /// What is said of it in the greeting, beside the extensions.
    pub(super) fn notice(self) -> Option<&'static str> {
        match self {
            Self::AppendOnly => Some(extension::APPEND_ONLY),
            Self::ReadOnly => Some(extension::READ_ONLY),
            Self::Full => None,
        }
    }

    /// Whether a file may be opened with these flags.
    pub(super) fn may_open(self, spot: &Spot, flags: u32) -> Result<(), Refusal> {
        if flags & !flag::READ == 0 {
            return Ok(());
        }
        self.may_write()?;
        if self == Self::Full {
            return Ok(());
        }
        let made = flags & (flag::CREATE | flag::EXCLUSIVE);
        let is_plain = flags & (flag::APPEND | flag::TRUNCATE) == 0
            && flags & flag::WRITE != 0
            && (made == 0 || made == flag::CREATE | flag::EXCLUSIVE);
        match (is_plain, stage(spot)) {
            (true, Stage::Unfinished) => Ok(()),
            _ => Err(append_only()),
        }
    }

    /// Whether a file may be removed.
    pub(super) fn may_remove(self, spot: &Spot) -> Result<(), Refusal> {
        self.may_write()?;
        match (self, stage(spot)) {
            (Self::Full, _) | (_, Stage::Unfinished) => Ok(()),
            _ => Err(append_only()),
        }
    }

    /// Whether a file may be renamed, without overwriting.
    pub(super) fn may_rename(self, from: &Spot, to: &Spot) -> Result<(), Refusal> {
        self.may_write()?;
        match (self, stage(from), stage(to)) {
            (Self::Full, _, _) | (_, Stage::Unfinished, Stage::Published) => Ok(()),
            _ => Err(append_only()),
        }
    }

    /// The file whose existence forbids to publish this name: key slots come with the configuration, or not at all. Whoever opens the repository tries all of
    /// them, and how long that takes, each slot says itself.
    pub(super) fn forbidden_by(self, spot: &Spot) -> Option<Spot> {
        let (above, _) = spot.split().filter(|_| self != Self::Full)?;
        let (_, top) = above.split_last().filter(|(last, _)| *last == b"keys")?;
        Some(Spot::below(top, b"config"))
    }

    /// Whether a directory may be made.
    pub(super) fn may_make_dir(self, spot: &Spot) -> Result<(), Refusal> {
        self.may_write()?;
        if self == Self::Full || is_directory(spot) { Ok(()) } else { Err(append_only()) }
    }

    /// Whether what is there may be changed in place, overwritten, or removed though it is a directory.
    pub(super) fn may_change(self) -> Result<(), Refusal> {
        self.may_write()?;
        if self == Self::Full { Ok(()) } else { Err(append_only()) }
    }

    /// Whether a file of this name is shown in a listing. Who does not know the random id in an unfinished name cannot touch what another client is writing.
    pub(super) fn shows(self, dir: &Spot, name: &[u8]) -> bool {
        self != Self::AppendOnly || stage_in(dir.names(), name) != Stage::Unfinished
    }

    fn may_write(self) -> Result<(), Refusal> {
        if self == Self::ReadOnly { Err(Refusal::denied("this key may only read")) } else { Ok(()) }
    }
}

fn append_only() -> Refusal {
    Refusal::denied("this key may only add what a backup adds")
}

fn stage(spot: &Spot) -> Stage {
    spot.split().map_or(Stage::Other, |(above, name)| stage_in(above, name))
}

fn stage_in(above: &[Vec<u8>], name: &[u8]) -> Stage {
    let Ok(name) = std::str::from_utf8(name) else { return Stage::Other };
    // The home directory may be what is served: its hidden files are none of a backup's business.
    if name.starts_with('.') || above.iter().any(|name| name.starts_with(b".")) {
        return Stage::Other;
    }
    let above: Vec<&str> = above.iter().map(|name| std::str::from_utf8(name).unwrap_or_default()).collect();
    let (stem, is_part) = match name.strip_suffix(".part") {
        Some(stem) => (stem, true),
        None => (name, false),
    };
    let when = |is_one: bool| match (is_one, is_part) {
        (true, false) => Stage::Published,
        (true, true) => Stage::Unfinished,
        (false, _) => Stage::Other,
    };
    match above[..] {
        [.., "sessions"] if is_lease(name) => Stage::Unfinished,
        [.., "bags", first] => when(stem.parse::<BagId>().is_ok() && stem.get(..2) == Some(first)),
        [.., "index"] => when(stem.parse::<SegmentId>().is_ok()),
        [.., "keys"] => when(stem.parse::<KeySlotId>().is_ok()),
        [.., "generations", client] => when(client.parse::<ClientId>().is_ok() && is_record(stem)),
        _ if stem == "config" && !is_part => Stage::Published,
        _ => match stem.strip_prefix("config.") {
            Some(id) if is_part && id.parse::<KeySlotId>().is_ok() => Stage::Unfinished,
            _ => Stage::Other,
        },
    }
}

/// `<client>.<generation>`, and whatever stands behind one more dot.
fn is_lease(name: &str) -> bool {
    let mut words = name.splitn(3, '.');
    let (client, generation) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    client.parse::<ClientId>().is_ok() && generation.parse::<GenerationId>().is_ok()
}

/// A generation's record, or tags beside it.
fn is_record(stem: &str) -> bool {
    match stem.split_once('.') {
        None => stem.parse::<GenerationId>().is_ok(),
        Some((generation, tags)) => {
            generation.parse::<GenerationId>().is_ok() && tags.parse::<TagsId>().is_ok()
        }
    }
}

/// A repository, a directory above it, or one that belongs into it.
fn is_directory(spot: &Spot) -> bool {
    let names: Vec<&str> = spot.names().iter().map(|name| std::str::from_utf8(name).unwrap_or(".")).collect();
    if names.iter().any(|name| name.starts_with('.')) {
        return false;
    }
    match names.split_last() {
        None => false,
        Some((last, above)) => match above.iter().position(|name| DIRECTORIES.contains(name)) {
            None => true,
            Some(place) if place + 1 < above.len() => false,
            Some(_) => match above.last() {
                Some(&"bags") => last.len() == 2 && last.bytes().all(|digit| digit.is_ascii_hexdigit()),
                Some(&"generations") => last.parse::<ClientId>().is_ok(),
                _ => false,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(path: &str) -> Spot {
        Spot::of(path.as_bytes()).unwrap()
    }

    const ID8: &str = "0123456789abcdef";
    const ID16: &str = "ab23456789abcdef0123456789abcdef";

    #[test]
    fn names_are_unfinished_published_or_of_no_concern() {
        let fill = |text: &str| text.replace("ID16", ID16).replace("ID8", ID8);
        for unfinished in [
            "sessions/ID16.ID8",
            "r/sessions/ID16.ID8.ID16",
            "sessions/ID16.ID8.condemned-ID16.part",
            "a/b/bags/ab/ID16.part",
            "keys/ID8.part",
            "r/config.ID8.part",
            "generations/ID16/ID8.ID8.part",
        ] {
            assert_eq!(stage(&spot(&fill(unfinished))), Stage::Unfinished, "{unfinished}");
        }
        for published in
            ["config", "r/config", "keys/ID8", "bags/ab/ID16", "index/ID16", "generations/ID16/ID8"]
        {
            assert_eq!(stage(&spot(&fill(published))), Stage::Published, "{published}");
        }
        for other in [
            "/",
            "ID16.part",
            "bags/ab/ID16.PART",
            "bags/cd/ID16.part",
            "bags/ab/ID16/x.part",
            "condemned/ID16",
            "condemned/ID16.part",
            "moved/ID16",
            "quarantine/x",
            "config.part",
            "sessions/mine",
            "sessions/ID16",
            "generations/ID16/ID16",
            ".ssh/config",
            ".x/bags/ab/ID16.part",
            "authorized_keys",
        ] {
            assert_eq!(stage(&spot(&fill(other))), Stage::Other, "{other}");
        }
    }

    #[test]
    fn directories_of_a_repository_and_above_it() {
        for good in ["r", "a/b/r", "r/bags", "r/bags/ab", "r/condemned", "r/sessions", "x/y/moved"] {
            assert!(is_directory(&spot(good)), "{good}");
        }
        assert!(is_directory(&spot(&format!("generations/{ID16}"))));
        for bad in
            ["", ".ssh", "a/.b/c", "r/bags/abc", "r/bags/ab/x", "r/keys/x", "r/generations/x", "index/bags"]
        {
            assert!(!is_directory(&spot(bad)), "{bad}");
        }
    }

    #[test]
    fn only_a_few_flags_write() {
        let part = spot(&format!("bags/ab/{ID16}.part"));
        let whole = spot(&format!("bags/ab/{ID16}"));
        let good = [flag::WRITE, flag::WRITE | flag::CREATE | flag::EXCLUSIVE];
        for flags in 0..64 {
            let reads = flags & !flag::READ == 0;
            let writes = good.contains(&(flags & !flag::READ));
            assert_eq!(Rights::AppendOnly.may_open(&part, flags).is_ok(), reads || writes, "{flags:#x}");
            assert_eq!(Rights::AppendOnly.may_open(&whole, flags).is_ok(), reads, "{flags:#x}");
            assert_eq!(Rights::ReadOnly.may_open(&part, flags).is_ok(), reads, "{flags:#x}");
            assert!(Rights::Full.may_open(&whole, flags).is_ok());
        }
    }
}
