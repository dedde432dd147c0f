//! The small files: configuration, key slots, generation records, index segments, lists of garbage collection.

use super::FsckError;
use super::bags::{Bags, cancelled, digest};
use super::check;
use super::flight::fly;
use super::listing::Listing;
use super::report::{Report, Unreadable, given};
use crate::bag::moved::{self, Move};
use crate::base::cancel::Cancel;
use crate::base::id::{BagId, ClientId, SegmentId};
use crate::condemned::{Doomed, List, Waits};
use crate::crypto::{KeySlot, Kind, keyslot};
use crate::generation::{Catalog, CatalogError, Generation, tags};
use crate::index::{BagEntry, format::MAX_SEGMENT};
use crate::repo::{Config, Repository, config};
use crate::sealed::{self, SealedError};
use crate::store::{Name, layout};

/// The largest list of garbage collection, opened.
const MAX_LIST: usize = 64 << 20;

/// What a small file takes of a window: most are far smaller than they may be.
const WEIGHT: u64 = 64 << 10;

/// What a segment says of a bag.
pub struct Claim {
    /// The segment.
    pub segment: SegmentId,
    /// The bag, and where its table lies.
    pub entry: BagEntry,
    /// A hash of the fingerprints.
    pub digest: [u8; 32],
}

/// A small file to be read.
enum Small {
    Config,
    Slot(crate::base::id::KeySlotId),
    Collecting(Name, Kind),
    Generation(ClientId, crate::base::id::GenerationId),
    Tags(ClientId, crate::base::id::GenerationId, crate::base::id::TagsId),
    Segment(SegmentId, u64),
}

/// What the small files hold.
#[derive(Default)]
pub struct Contents {
    /// The generations whose records could be read.
    pub generations: Vec<(ClientId, Generation)>,
    /// Records that could not.
    pub lost_records: u64,
    /// Records and tags that were read and are broken.
    pub broken: Vec<Name>,
    /// What was moved.
    pub moves: Vec<Move>,
    /// Whether all records of that were read.
    pub has_all_moves: bool,
    /// Bags that garbage collection has decided to remove.
    pub given_up: Vec<BagId>,
    /// What segments say, of all bags in them.
    pub claims: Vec<Claim>,
}

/// Reads and checks all of them: one flight.
///
/// # Errors
/// When the store is out of reach.
pub fn read(
    repository: &Repository,
    listing: &Listing,
    report: &Report<'_>,
    cancel: &Cancel,
) -> Result<Contents, FsckError> {
    let catalog = Catalog::new(repository.store().clone(), repository.sealing());
    let mut reader = Reader {
        repository,
        catalog,
        report,
        contents: Contents { has_all_moves: true, ..Contents::default() },
    };
    let mut files = vec![Small::Config];
    files.extend(listing.slots.iter().map(|id| Small::Slot(*id)));
    files
        .extend(listing.collecting.iter().map(|name| Small::Collecting(name.clone(), collecting_kind(name))));
    files.extend(listing.generations.iter().map(|(client, id)| Small::Generation(*client, *id)));
    files.extend(listing.tags.iter().map(|(client, id, tags)| Small::Tags(*client, *id, *tags)));
    files.extend(listing.segments.iter().map(|(id, size)| Small::Segment(*id, *size)));
    let store = repository.store();
    let ask = |file: &Small| {
        let (limit, weight) = match file {
            Small::Config => (config::MAX_LEN, WEIGHT),
            Small::Slot(_) => (keyslot::MAX_LEN, WEIGHT),
            Small::Segment(_, size) => (MAX_SEGMENT, *size),
            Small::Collecting(..) | Small::Generation(..) | Small::Tags(..) => (MAX_LIST, WEIGHT),
        };
        (weight, store.read_all(&file.name(), u64::try_from(limit).unwrap_or(u64::MAX)))
    };
    fly(files, ask, |file, answer| {
        cancelled(cancel)?;
        reader.one(&file, given(answer)?);
        Ok(())
    })?;
    Ok(reader.contents)
}

impl Small {
    fn name(&self) -> Name {
        match self {
            Self::Config => layout::config(),
            Self::Slot(id) => layout::key_slot(*id),
            Self::Collecting(name, _) => name.clone(),
            Self::Generation(client, id) => layout::generation(*client, *id),
            Self::Tags(client, id, tags) => layout::tags(*client, *id, *tags),
            Self::Segment(id, _) => layout::segment(*id),
        }
    }
}

fn collecting_kind(name: &Name) -> Kind {
    match (name.as_str().starts_with("moved/"), name.last().rsplit_once('.')) {
        (true, _) => Kind::Moved,
        (false, Some((_, "waits"))) => Kind::CondemnedWaits,
        (false, Some(_)) => Kind::CondemnedDoomed,
        (false, None) => Kind::Condemned,
    }
}

struct Reader<'a> {
    repository: &'a Repository,
    catalog: Catalog,
    report: &'a Report<'a>,
    contents: Contents,
}

impl Reader<'_> {
    fn one(&mut self, file: &Small, answer: Result<Vec<u8>, Unreadable>) {
        let name = file.name();
        let bytes = match (answer, file) {
            (Ok(bytes), _) => bytes,
            // Whatever was listed and is gone was forgotten or merged meanwhile; these two never are.
            (Err(Unreadable::Missing), Small::Config) => {
                return self.report.damage(
                    &name,
                    "it is missing; put it back from a copy, without it the repository cannot be opened",
                );
            }
            (Err(Unreadable::Missing), Small::Collecting(_, Kind::Moved)) => {
                // Another record has taken its place, which may not be listed.
                self.contents.has_all_moves = false;
                return;
            }
            (Err(Unreadable::Missing), _) => return,
            (Err(Unreadable::Text(text)), _) => {
                self.lost(file);
                return self.report.damage(&name, format!("{text}; {}", remedy(file)));
            }
        };
        let checked = match file {
            Small::Config => self.config(&bytes),
            Small::Slot(id) => KeySlot::decode(*id, &bytes).map(drop).map_err(|error| error.to_string()),
            Small::Collecting(name, kind) => self.collecting(*kind, name, bytes),
            Small::Generation(client, id) => self.record(*client, *id, bytes),
            Small::Tags(..) => {
                let opened = tags::open(&self.repository.sealing(), &name, bytes);
                self.unless_broken(&name, opened).and_then(|tags| check::tags(&tags))
            }
            Small::Segment(id, _) => self.segment(*id, &name, bytes),
        };
        if let Err(wrong) = checked {
            self.lost(file);
            self.report.damage(&name, format!("{wrong}; {}", remedy(file)));
        }
    }

    /// What was opened; a file that no version of kitbag will ever open is remembered.
    fn unless_broken<T>(&mut self, name: &Name, opened: Result<T, CatalogError>) -> Result<T, String> {
        opened.map_err(|error| {
            use SealedError::{Damaged, Foreign, TooLong};
            let is_broken = match &error {
                CatalogError::Sealed(sealed) => {
                    matches!(sealed, Damaged { .. } | Foreign { .. } | TooLong { .. })
                }
                CatalogError::Record { .. } => true,
                CatalogError::Store(_) => false,
            };
            if is_broken {
                self.contents.broken.push(name.clone());
            }
            error.to_string()
        })
    }

    fn lost(&mut self, file: &Small) {
        if matches!(file, Small::Generation(..)) {
            self.contents.lost_records = self.contents.lost_records.saturating_add(1);
        }
    }

    fn open(&self, kind: Kind, name: &Name, bytes: Vec<u8>, limit: usize) -> Result<Vec<u8>, String> {
        let (keys, id) = (self.repository.keys(), self.repository.id());
        sealed::decode(keys, id, kind, name, bytes, limit).map_err(|error| error.to_string())
    }

    fn collecting(&mut self, kind: Kind, name: &Name, bytes: Vec<u8>) -> Result<(), String> {
        let plaintext = self.open(kind, name, bytes, MAX_LIST)?;
        match kind {
            Kind::Moved => moved::format::decode(&plaintext)
                .map(|moves| self.contents.moves.extend(moves))
                .map_err(|error| error.to_string()),
            Kind::CondemnedWaits => Waits::decode(&plaintext).map(drop).map_err(|error| error.to_string()),
            Kind::CondemnedDoomed => Doomed::decode(&plaintext)
                .map(|doomed| self.contents.given_up.extend(doomed.bags))
                .map_err(|error| error.to_string()),
            // The others on the list may be let off.
            _ => List::decode(&plaintext)
                .map(|list| self.contents.given_up.extend(list.emptied))
                .map_err(|error| error.to_string()),
        }
    }

    fn config(&self, bytes: &[u8]) -> Result<(), String> {
        let verified =
            Config::decode(bytes).and_then(|config| config.verify(self.repository.keys().config()));
        match verified {
            Ok(config) if config.repository == self.repository.id() => Ok(()),
            Ok(_) => Err("it is that of another repository".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn record(
        &mut self,
        client: ClientId,
        id: crate::base::id::GenerationId,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        let opened = self.catalog.open(client, id, bytes);
        let generation = self.unless_broken(&layout::generation(client, id), opened)?;
        check::client(self.repository.keys().names(), &generation, client)?;
        check::roots(&generation)?;
        self.contents.generations.push((client, generation));
        Ok(())
    }

    fn segment(&mut self, segment: SegmentId, name: &Name, bytes: Vec<u8>) -> Result<(), String> {
        let plaintext = self.open(Kind::Segment, name, bytes, MAX_SEGMENT)?;
        let bags = crate::index::format::bags(&plaintext).map_err(|error| error.to_string())?;
        for bag in bags {
            let bag = bag.map_err(|error| error.to_string())?;
            let digest = digest(bag.fingerprints());
            self.contents.claims.push(Claim { segment, entry: *bag.entry(), digest });
        }
        Ok(())
    }
}

/// What to do about a damaged small file.
fn remedy(file: &Small) -> &'static str {
    match file {
        Small::Config => "put it back from a copy, without it the repository cannot be opened",
        Small::Slot(_) => "its passphrase opens the repository no more: put the file back from a copy",
        Small::Collecting(..) => "remove it, garbage collection makes it anew",
        Small::Generation(..) => {
            "this generation cannot be restored unless its record is put back from a copy; others are not affected, and `kitbag fsck --repair` takes it out of the way"
        }
        Small::Tags(..) => {
            "the generation beside it is not forgotten while this file is there: `kitbag fsck --repair` takes it out of the way"
        }
        Small::Segment(..) => "run `kitbag fsck --repair`",
    }
}

/// Compares what segments say with what bags say.
pub fn compare(claims: &[Claim], bags: &Bags, report: &Report<'_>) {
    for claim in claims {
        let number = bags.number_of(claim.entry.bag);
        let name = layout::segment(claim.segment);
        let Some(bag) = bags.get(number) else {
            // Garbage collection leaves it there where that is cheaper; whoever means to refer to the bag looks whether it is there.
            let text = format!("it lists bag {}, which is not there; that does no harm", claim.entry.bag);
            report.note(name.as_str(), text);
            continue;
        };
        // Of a damaged bag, that is said which is wrong with the bag.
        let Some(sound) = &bag.sound else { continue };
        if let Err(wrong) = check::segment_entry(&claim.entry, &claim.digest, &sound.entry, &sound.digest) {
            report.damage(&name, format!("{wrong}; run `kitbag fsck --repair`"));
        }
    }
}
