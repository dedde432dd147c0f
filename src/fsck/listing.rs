//! Which files there are: two flights, whatever their number.

use super::FsckError;
use super::report::Report;
use crate::base::id::{BagId, ClientId, GenerationId, KeySlotId, SegmentId, TagsId};
use crate::generation::{leases, tags};
use crate::store::{ErrorKind, Listed, Name, Pending, Store, layout};

/// The files of a repository, by kind.
#[derive(Debug, Default)]
pub struct Listing {
    /// Key slots.
    pub slots: Vec<KeySlotId>,
    /// Index segments, with their sizes.
    pub segments: Vec<(SegmentId, u64)>,
    /// Sessions, and when their file was last modified by the server's clock.
    pub sessions: Vec<(ClientId, GenerationId, i64)>,
    /// Generations.
    pub generations: Vec<(ClientId, GenerationId)>,
    /// Files of tags.
    pub tags: Vec<(ClientId, GenerationId, TagsId)>,
    /// Lists of garbage collection: their names.
    pub collecting: Vec<Name>,
    /// Bags, with their sizes.
    pub bags: Vec<(BagId, u64)>,
}

/// Lists everything. Clients' directories are read before those of bags: a bag is there before the generation that needs it, so what is
/// missing in this listing was not there when its generation was seen.
///
/// `repairs`: whether that needs to know who is at work, which is not told to a key that may only add.
///
/// # Errors
/// What the store says.
pub fn read(store: &dyn Store, report: &Report<'_>, repairs: bool) -> Result<Listing, FsckError> {
    let list = |name: &str| store.list(&layout::directory(name));
    let top = store.list(&Name::top());
    let [keys, index, sessions, clients, bags] =
        ["keys", "index", "sessions", "generations", "bags"].map(list);
    let collecting = ["condemned", "moved"].map(|name| (name, list(name)));

    let mut listing = Listing::default();
    let mut sort = Sorter { report };
    let known =
        |name: &str| name == "config" || name == layout::QUARANTINE || layout::DIRECTORIES.contains(&name);
    sort.each("", top.wait()?, |file| known(&file.name).then_some(()));
    listing.slots = sort.each("keys", keys.wait()?, |file| file.name.parse().ok());
    listing.segments = sort.each("index", index.wait()?, |file| Some((file.name.parse().ok()?, file.size)));
    let sessions = match sessions.wait() {
        Err(error) if error.kind == ErrorKind::AppendOnly && !repairs => {
            report.note("sessions", "somebody is writing, or was cut off: this key is not told who");
            Vec::new()
        }
        listed => listed?,
    };
    let sessions =
        sort.each("sessions", sessions, |file| leases::parse(&file.name).is_some().then(|| file.clone()));
    let whole = leases::of(&sessions).into_iter().filter(|held| held.is_whole);
    listing.sessions = whole.map(|held| (held.client, held.id, held.since)).collect();
    for (directory, files) in collecting {
        let mut files = files.wait()?;
        // Nothing is in them.
        files.retain(|file| !(directory == "condemned" && file.name.ends_with(layout::KEY_MARK)));
        listing.collecting.extend(sort.each(directory, files, |file| collecting_name(directory, &file.name)));
    }
    let clients: Vec<ClientId> = sort.each("generations", clients.wait()?, |file| file.name.parse().ok());
    let firsts: Vec<u8> = sort.each("bags", bags.wait()?, |file| {
        u8::from_str_radix(&file.name, 16).ok().filter(|first| format!("{first:02x}") == file.name)
    });

    let ask = |name: Name| (store.list(&name), name);
    let of_clients: Vec<_> =
        clients.iter().map(|client| (*client, ask(layout::generations(*client)))).collect();
    let of_bags: Vec<_> = firsts.iter().map(|first| (*first, ask(layout::bag_directory(*first)))).collect();
    for (client, (files, name)) in of_clients {
        let known = |file: &Listed| match tags::parse(&file.name) {
            Some((id, tags)) => Some((id, Some(tags))),
            None => Some((file.name.parse().ok()?, None)),
        };
        let ids: Vec<(GenerationId, Option<TagsId>)> = sort.below(&name, files, known)?;
        for (id, tags) in ids {
            match tags {
                None => listing.generations.push((client, id)),
                Some(tags) => listing.tags.push((client, id, tags)),
            }
        }
    }
    for (first, (files, name)) in of_bags {
        let bag = |file: &Listed| {
            let id: BagId = file.name.parse().ok()?;
            (id.0.first() == Some(&first)).then_some((id, file.size))
        };
        listing.bags.extend(sort.below(&name, files, bag)?);
    }
    listing.generations.sort_unstable();
    listing.bags.sort_unstable();
    Ok(listing)
}

/// Keeps the files of a kind and tells of the others.
struct Sorter<'a> {
    report: &'a Report<'a>,
}

impl Sorter<'_> {
    fn below<T>(
        &mut self,
        directory: &Name,
        files: Pending<Vec<Listed>>,
        known: impl Fn(&Listed) -> Option<T>,
    ) -> Result<Vec<T>, FsckError> {
        Ok(self.each(directory.as_str(), files.wait()?, known))
    }

    fn each<T>(
        &mut self,
        directory: &str,
        files: Vec<Listed>,
        known: impl Fn(&Listed) -> Option<T>,
    ) -> Vec<T> {
        let mut kept = Vec::new();
        for file in files {
            match known(&file) {
                Some(found) => kept.push(found),
                None => self.stranger(directory, &file.name),
            }
        }
        kept
    }

    fn stranger(&self, directory: &str, name: &str) {
        let path = if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
        if name.ends_with(".part") {
            self.report
                .note(&path, "an upload that is under way or was cut off; it takes space and does no harm");
        } else if !(directory.is_empty() && name.starts_with('.')) {
            self.report.note(&path, "not a file of this repository; it is ignored");
        }
    }
}

fn collecting_name(directory: &str, name: &str) -> Option<Name> {
    let (id, end) = name.split_once('.').map_or((name, None), |(id, end)| (id, Some(end)));
    id.parse::<SegmentId>().ok()?;
    let fits = match end {
        None => true,
        Some(end) => directory == "condemned" && matches!(end, "waits" | "doomed"),
    };
    fits.then(|| Name::join(&[directory, name]))
}
