//! Which files there are: two flights, whatever their number.

use std::collections::{BTreeMap, BTreeSet};

use super::GcError;
use crate::bag::moved;
use crate::base::id::{BagId, ClientId, CollectionId, GenerationId};
use crate::condemned::reading::Names;
use crate::generation::leases;
use crate::index::ListedSegment;
use crate::store::{Listed, Name, Pending, Store, layout};

/// A session, as its own lease shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Whose it is.
    pub client: ClientId,
    /// Its id.
    pub id: GenerationId,
    /// When it was begun, by the server's clock, in seconds.
    pub since: i64,
}

/// A bag as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BagFile {
    /// Its length in bytes.
    pub size: u64,
    /// When it was written, by the server's clock, in seconds.
    pub modified: i64,
}

/// What a listing of `sessions/` shows.
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    /// Those that hold their own lease.
    pub held: Vec<Held>,
    /// Leases without it: of sessions that were revoked, or killed at their end.
    pub stray: Vec<Name>,
}

/// What is asked for first: all of it must be asked for in this order.
pub struct First {
    /// `condemned/`.
    pub condemned: Pending<Vec<Listed>>,
    /// `index/`.
    pub index: Pending<Vec<Listed>>,
}

/// The directories that are asked for behind them.
pub struct Second {
    moved: Pending<Vec<Listed>>,
    sessions: Pending<Vec<Listed>>,
    clients: Pending<Vec<Listed>>,
    bags: Pending<Vec<Listed>>,
}

/// The top of the repository.
#[derive(Debug, Default)]
pub struct Top {
    /// The lists of garbage collection.
    pub condemned: Names,
    /// Uploads of such lists that were cut off.
    pub cut_off: Vec<Name>,
    /// The index segments.
    pub segments: Vec<ListedSegment>,
    /// The records of what was moved.
    pub moved: Vec<CollectionId>,
    /// Who is writing.
    pub sessions: Sessions,
    /// The clients.
    pub clients: Vec<ClientId>,
    first_bytes: Vec<u8>,
}

/// What lies below.
#[derive(Debug, Default)]
pub struct Below {
    /// The generations.
    pub generations: BTreeSet<(ClientId, GenerationId)>,
    /// The bags.
    pub bags: BTreeMap<BagId, BagFile>,
    /// Bags that are being uploaded, or were cut off.
    pub parts: Vec<(Name, BagFile)>,
}

impl Second {
    /// Asks for the rest of the top.
    pub fn ask(store: &dyn Store) -> Self {
        let list = |name: &str| store.list(&layout::directory(name));
        // Sessions before what they publish: of one that is not there any more, all that it has published is seen.
        let sessions = list("sessions");
        let moved = list("moved");
        Self { moved, sessions, clients: list("generations"), bags: list("bags") }
    }

    /// The top.
    ///
    /// # Errors
    /// What the store says.
    pub fn wait(self, first: First) -> Result<Top, GcError> {
        let condemned = first.condemned.wait()?;
        let is_cut_off = |file: &&Listed| file.name.ends_with(".part");
        let cut_off = condemned.iter().filter(is_cut_off).filter_map(|file| below("condemned", &file.name));
        let bags = self.bags.wait()?;
        let first_byte = |file: &Listed| {
            u8::from_str_radix(&file.name, 16).ok().filter(|first| format!("{first:02x}") == file.name)
        };
        let segment = |file: &Listed| Some(ListedSegment { id: file.name.parse().ok()?, size: file.size });
        Ok(Top {
            cut_off: cut_off.collect(),
            condemned: Names::of(&condemned),
            segments: first.index.wait()?.iter().filter_map(segment).collect(),
            moved: moved::follow::ids(&self.moved.wait()?),
            sessions: sessions(&self.sessions.wait()?),
            clients: clients(&self.clients.wait()?),
            first_bytes: bags.iter().filter_map(first_byte).collect(),
        })
    }
}

/// The clients that a listing of `generations/` shows.
#[must_use]
pub fn clients(listed: &[Listed]) -> Vec<ClientId> {
    listed.iter().filter_map(|file| file.name.parse().ok()).collect()
}

/// The sessions that a listing of `sessions/` shows.
#[must_use]
pub fn sessions(listed: &[Listed]) -> Sessions {
    let mut sessions = Sessions::default();
    for file in listed {
        if let Some((client, id, None)) = leases::parse(&file.name) {
            sessions.held.push(Held { client, id, since: file.modified });
        }
    }
    let is_held = |client, id| sessions.held.iter().any(|held| (held.client, held.id) == (client, id));
    let stray = listed.iter().filter(|file| match leases::parse(&file.name) {
        Some((client, id, Some(_))) => !is_held(client, id),
        _ => false,
    });
    sessions.stray = stray.filter_map(|file| below("sessions", &file.name)).collect();
    sessions
}

fn below(directory: &str, name: &str) -> Option<Name> {
    Name::new(&format!("{directory}/{name}"))
}

/// Clients' directories asked for.
pub struct Catalogues(Vec<(ClientId, Pending<Vec<Listed>>)>);

impl Catalogues {
    /// Asks for the generations of these clients.
    pub fn ask(store: &dyn Store, clients: &[ClientId]) -> Self {
        Self(clients.iter().map(|client| (*client, store.list(&layout::generations(*client)))).collect())
    }

    /// The generations.
    ///
    /// # Errors
    /// What the store says.
    pub fn wait(self) -> Result<BTreeSet<(ClientId, GenerationId)>, GcError> {
        let mut all = BTreeSet::new();
        for (client, listed) in self.0 {
            all.extend(listed.wait()?.iter().filter_map(|file| Some((client, file.name.parse().ok()?))));
        }
        Ok(all)
    }
}

/// The directories below, asked for.
pub struct AskedBelow {
    catalogues: Catalogues,
    bags: Vec<(u8, Pending<Vec<Listed>>)>,
}

impl Top {
    /// Asks for what lies below: generations, then bags. A bag that is seen may so be needed by a generation that is not, which then is one of the waits.
    pub fn ask_below(&self, store: &dyn Store) -> AskedBelow {
        let catalogues = Catalogues::ask(store, &self.clients);
        let bags = self.first_bytes.iter().map(|first| (*first, store.list(&layout::bag_directory(*first))));
        AskedBelow { catalogues, bags: bags.collect() }
    }
}

impl AskedBelow {
    /// What lies below.
    ///
    /// # Errors
    /// What the store says.
    pub fn wait(self) -> Result<Below, GcError> {
        let mut below = Below { generations: self.catalogues.wait()?, ..Below::default() };
        for (first, listed) in self.bags {
            let directory = layout::bag_directory(first);
            for file in listed.wait()? {
                let found = BagFile { size: file.size, modified: file.modified };
                match file.name.parse::<BagId>() {
                    Ok(id) if id.0.first() == Some(&first) => drop(below.bags.insert(id, found)),
                    _ if file.name.ends_with(".part") => {
                        let name = self::below(directory.as_str(), &file.name);
                        below.parts.extend(name.map(|name| (name, found)));
                    }
                    _ => {}
                }
            }
        }
        Ok(below)
    }
}
