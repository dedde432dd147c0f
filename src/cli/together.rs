//! What the paths of a command line mean in several generations.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::Failure;
use super::select;
use crate::bag::source::Source;
use crate::base::text::escape;
use crate::entry::Entry;
use crate::generation::Generation;
use crate::look::{Set, Start};

/// Where to begin in these generations, numbered in their order: at all of their roots, or at what the paths name in them, in the order of the paths found. What stands
/// under the same path in several of them is one start.
///
/// # Errors
/// That a path is in none of them; what cannot be read.
pub fn starts(
    source: &Source,
    generations: &[&Generation],
    paths: &[PathBuf],
) -> Result<Vec<Start>, Failure> {
    let mut all: BTreeMap<Vec<u8>, Vec<(Set, Entry)>> = BTreeMap::new();
    let mut missing: Vec<&PathBuf> = paths.iter().collect();
    for (number, generation) in generations.iter().enumerate() {
        let mut add = |starts: Vec<select::Start>| {
            for select::Start { path, entry, .. } in starts {
                let states = all.entry(path).or_default();
                match states.iter_mut().find(|(_, known)| *known == entry) {
                    Some((set, _)) => *set = crate::look::versions::union(set, &Arc::from([number])),
                    None => states.push((Arc::from([number]), entry)),
                }
            }
        };
        match paths {
            [] => add(select::starts(source, generation, &[])?.0),
            paths => {
                let (starts, _) = select::starts(source, generation, paths)?;
                add(starts);
                for path in std::mem::take(&mut missing) {
                    if select::starts(source, generation, std::slice::from_ref(path))?.1.is_some() {
                        missing.push(path);
                    }
                }
            }
        }
    }
    if let Some(path) = missing.first() {
        let path = escape(path.as_os_str().as_encoded_bytes());
        return Err(Failure::failed(format!("no generation that was asked holds {path}"))
            .hint("`kitbag ls` lists what one holds"));
    }
    Ok(all.into_iter().map(|(path, entries)| Start { path, entries }).collect())
}
