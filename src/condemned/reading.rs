//! Reading what is condemned, and what follows from it for those who write.

use std::collections::BTreeMap;

use super::format::{Doomed, List, ListError, MAX_LIST, MAX_SEALED, Waits};
use crate::bag::Sealing;
use crate::base::id::{BagId, CollectionId, GenerationId};
use crate::crypto::Kind;
use crate::sealed::{self, SealedError};
use crate::store::{ErrorKind, Listed, Name, Pending, SharedStore, StoreError, layout};

/// A list that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CondemnedError {
    /// The store could not give it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its seal is broken, or it is none.
    #[error(
        "the list of garbage collection {name} is damaged, so nobody knows what it condemns; `kitbag gc` removes it ({reason})"
    )]
    Damaged {
        /// The list.
        id: CollectionId,
        /// Its file.
        name: Name,
        /// What is wrong.
        reason: String,
    },
}

/// A list, and what was published of it beside it.
#[derive(Debug, Clone)]
pub struct Sentence {
    /// Its id.
    pub id: CollectionId,
    /// What is to be removed.
    pub list: List,
    /// Who may still refer to it, once that is known.
    pub waits: Option<Waits>,
    /// What is removed, once that is decided.
    pub doomed: Option<Doomed>,
}

impl Sentence {
    /// Whether no fresh reference may be made to a bag.
    #[must_use]
    pub fn forbids(&self, bag: BagId) -> bool {
        match &self.doomed {
            Some(doomed) => doomed.bags.contains(&bag),
            None => self.list.names(bag),
        }
    }

    /// The bags to which no fresh reference may be made.
    #[must_use]
    pub fn forbidden(&self) -> Vec<BagId> {
        match &self.doomed {
            Some(doomed) => doomed.bags.iter().copied().collect(),
            None => self.list.bags().collect(),
        }
    }

    /// Whether a generation that is there may have references that this list does not let off: it was not seen when the list was made, and comes from somebody who
    /// did not know of it, or perhaps does. Nobody may take over from it a reference to a dead bag, or to the part of a thinned one that was not copied.
    #[must_use]
    pub fn suspects(&self, generation: GenerationId) -> bool {
        if self.doomed.is_some() || self.list.seen.contains(&generation) {
            return false;
        }
        self.waits.as_ref().is_none_or(|waits| waits.names(generation))
    }
}

/// What a listing of `condemned/` shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The lists, and whether the other two files of each are there.
    pub lists: BTreeMap<CollectionId, (bool, bool)>,
    /// Files without their list.
    pub stray: Vec<Name>,
}

impl Names {
    /// Sorts a listing; names of other forms are none of ours.
    #[must_use]
    pub fn of(listed: &[Listed]) -> Self {
        let mut names = Self::default();
        let parsed: Vec<_> = listed.iter().filter_map(|file| part(&file.name)).collect();
        for (id, part) in &parsed {
            if *part == Part::List {
                names.lists.insert(*id, (false, false));
            }
        }
        for (id, part) in parsed {
            match (part, names.lists.get_mut(&id)) {
                (Part::Waits, Some((waits, _))) => *waits = true,
                (Part::Doomed, Some((_, doomed))) => *doomed = true,
                (Part::Waits, None) => names.stray.push(layout::condemned_waits(id)),
                (Part::Doomed, None) => names.stray.push(layout::condemned_doomed(id)),
                (Part::List, _) => {}
            }
        }
        names
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    List,
    Waits,
    Doomed,
}

fn part(name: &str) -> Option<(CollectionId, Part)> {
    let (id, part) = match name.split_once('.') {
        None => (name, Part::List),
        Some((id, "waits")) => (id, Part::Waits),
        Some((id, "doomed")) => (id, Part::Doomed),
        Some(_) => return None,
    };
    Some((id.parse().ok()?, part))
}

/// Lists asked for; nothing is waited for yet.
pub struct Asked {
    sealing: Sealing,
    store: SharedStore,
    lists: Vec<AskedList>,
}

struct AskedList {
    id: CollectionId,
    list: Pending<Vec<u8>>,
    waits: Option<Pending<Vec<u8>>>,
    doomed: Option<Pending<Vec<u8>>>,
}

/// Asks for all lists of a listing, in one flight.
#[must_use]
pub fn ask(store: &SharedStore, sealing: &Sealing, names: &Names) -> Asked {
    let read = |name: Name| store.read_all(&name, MAX_SEALED);
    let lists = names.lists.iter().map(|(id, (waits, doomed))| {
        let waits = waits.then(|| read(layout::condemned_waits(*id)));
        let doomed = doomed.then(|| read(layout::condemned_doomed(*id)));
        AskedList { id: *id, list: read(layout::condemned(*id)), waits, doomed }
    });
    Asked { sealing: sealing.clone(), store: store.clone(), lists: lists.collect() }
}

impl Asked {
    /// The lists; one that is gone by now has no bags left.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn wait(self) -> Result<Vec<Sentence>, CondemnedError> {
        self.wait_each().into_iter().filter_map(Result::transpose).collect()
    }

    /// The same, each with its own failure.
    #[must_use]
    pub fn wait_each(self) -> Vec<Result<Option<Sentence>, CondemnedError>> {
        let Self { sealing, store, lists } = self;
        let reader = Reader { sealing, store };
        lists.into_iter().map(|asked| reader.sentence(asked)).collect()
    }
}

struct Reader {
    sealing: Sealing,
    store: SharedStore,
}

impl Reader {
    fn sentence(&self, asked: AskedList) -> Result<Option<Sentence>, CondemnedError> {
        let AskedList { id, list, waits, doomed } = asked;
        let list = self.file(id, Kind::Condemned, layout::condemned(id), Some(list), List::decode)?;
        let waits = self.file(id, Kind::CondemnedWaits, layout::condemned_waits(id), waits, Waits::decode)?;
        let doomed =
            self.file(id, Kind::CondemnedDoomed, layout::condemned_doomed(id), doomed, Doomed::decode)?;
        Ok(list.map(|list| Sentence { id, list, waits, doomed }))
    }

    fn file<T>(
        &self,
        id: CollectionId,
        kind: Kind,
        name: Name,
        asked: Option<Pending<Vec<u8>>>,
        decode: impl Fn(&[u8]) -> Result<T, ListError>,
    ) -> Result<Option<T>, CondemnedError> {
        let Some(asked) = asked else { return Ok(None) };
        let given = |answer: Result<Vec<u8>, StoreError>| match answer {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CondemnedError::from(error)),
        };
        let open = |bytes: Vec<u8>| {
            let Sealing { keys, repository } = &self.sealing;
            let opened = sealed::decode(keys, *repository, kind, &name, bytes, MAX_LIST);
            let text = |error: SealedError| error.to_string();
            opened.map_err(text).and_then(|plaintext| decode(&plaintext).map_err(|error| error.to_string()))
        };
        let Some(bytes) = given(asked.wait())? else { return Ok(None) };
        if let Ok(opened) = open(bytes) {
            return Ok(Some(opened));
        }
        // Should a copy in the local cache be what is damaged, the store has a better one.
        self.store.forget(&name);
        let Some(bytes) = given(self.store.read_all(&name, MAX_SEALED).wait())? else { return Ok(None) };
        open(bytes).map(Some).map_err(|reason| CondemnedError::Damaged { id, name, reason })
    }
}
