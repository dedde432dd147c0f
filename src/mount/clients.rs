//! Which clients and generations are shown, looked up again from time to time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::opened::Opened;
use super::upper::Client;
use crate::base::id::{ClientId, GenerationId};
use crate::generation::{Catalog, CatalogError};
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::store::{ErrorKind, StoreError};

/// What is known of the repository's generations.
pub struct Clients {
    catalog: Catalog,
    /// The one client to show; all if there is none.
    only: Option<ClientId>,
    known: Mutex<HashMap<(ClientId, GenerationId), Arc<Opened>>>,
    told: Mutex<HashSet<GenerationId>>,
}

impl Clients {
    /// Of this repository; of the client of this name only, if one is given.
    #[must_use]
    pub fn new(repository: &Repository, only: Option<&str>) -> Self {
        let only = only.map(|name| repository.keys().names().client_id(name.as_bytes()));
        Self { catalog: repository.catalog(), only, known: Mutex::default(), told: Mutex::default() }
    }

    /// Those that are there now, by name. Three flights: clients, their generations, the records that are not known yet. A record that cannot be read is told
    /// to `monitor`, once.
    ///
    /// # Errors
    /// When the store is out of reach.
    pub fn read(&self, monitor: &dyn Monitor) -> Result<Vec<Client>, StoreError> {
        let ids = match self.only {
            Some(id) => vec![id],
            None => self.catalog.clients()?,
        };
        let lists: Vec<_> = ids.into_iter().map(|id| (id, self.catalog.list(id))).collect();
        let mut there = Vec::new();
        for (client, list) in lists {
            there.extend(Catalog::ids(&list.wait()?).into_iter().map(|id| (client, id)));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|key, _| there.contains(key));
        let new: Vec<_> = there.into_iter().filter(|key| !known.contains_key(key)).collect();
        for (client, id, record) in self.catalog.read_of_all(new.into_iter()) {
            match record {
                Ok(record) => drop(known.insert((client, id), Opened::new(client, record))),
                // Forgotten since it was listed.
                Err(error) if error.is_gone() => {}
                Err(CatalogError::Store(error))
                    if !matches!(error.kind, ErrorKind::Truncated | ErrorKind::TooLong) =>
                {
                    return Err(error);
                }
                Err(error) => self.tell(monitor, id, &error),
            }
        }
        Ok(sorted(known.values()))
    }

    fn tell(&self, monitor: &dyn Monitor, id: GenerationId, error: &CatalogError) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(id) {
            monitor.problem(Problem::new(Severity::Damage, b"", error));
        }
    }
}

fn sorted<'a>(known: impl Iterator<Item = &'a Arc<Opened>>) -> Vec<Client> {
    let mut all: Vec<_> = known.cloned().collect();
    all.sort_by(|one, next| {
        let key = |opened: &Opened| (opened.record.started, opened.record.id);
        (&one.record.client, one.client, key(one)).cmp(&(&next.record.client, next.client, key(next)))
    });
    all.chunk_by(|one, next| one.client == next.client)
        .filter_map(|generations| {
            let first = generations.first()?;
            let (id, name) = (first.client, first.record.client.clone());
            Some(Client { id, name, generations: generations.to_vec() })
        })
        .collect()
}
