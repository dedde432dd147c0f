//! What is restored, and where to.

use super::site::Trouble;
use super::{Options, RestoreError};
use crate::bag::reader::ReadError;
use crate::bag::source::Source;
use crate::dir::reader::TreeError;
use crate::entry::{Entry, Kind};
use crate::generation::locate::{Located, locate, names};
use crate::generation::{Generation, Root};

/// Something to be restored with all that is below it.
#[derive(Debug)]
pub struct Selected {
    /// Its names below the directory that is restored into. An empty name stands for that directory itself.
    pub names: Vec<Vec<u8>>,
    /// The entries of the last of these names: its own last, before it those of directories on the way whose metadata are known.
    pub way: Vec<Entry>,
    /// Its root's path.
    root: Vec<u8>,
}

/// What the options select, in the order of a tree; and the paths that are not there, or cannot be found, with the reason.
pub type Selection = (Vec<Selected>, Vec<(Vec<u8>, Trouble)>);

/// What the options select.
///
/// # Errors
/// When the store is out of reach.
pub fn select(
    source: &Source,
    generation: &Generation,
    options: &Options,
) -> Result<Selection, RestoreError> {
    let mut selected: Vec<Selected> = Vec::new();
    let mut missing = Vec::new();
    if options.paths.is_empty() {
        for root in &generation.roots {
            selected.push(place(Located { root, way: vec![root.entry.clone()] }, options.strip_root));
        }
    }
    for path in &options.paths {
        match locate(source, generation, path) {
            Ok(found) if found.is_empty() => {
                missing.push((path.clone(), Trouble::Dependent("there is no such path in this generation")));
            }
            Ok(found) => selected.extend(found.into_iter().map(|one| place(one, options.strip_root))),
            Err(error) if error.is_damage() => missing.push((path.clone(), error.into())),
            Err(TreeError::Read(ReadError::Store(error))) => return Err(error.into()),
            Err(error) => missing.push((path.clone(), error.into())),
        }
    }
    // What stands in something else that is selected comes with it.
    selected.sort_by(|one, next| (&one.root, &one.names).cmp(&(&next.root, &next.names)));
    selected.dedup_by(|next, one| next.root == one.root && next.names.starts_with(&one.names));
    selected.sort_by(|one, next| one.names.cmp(&next.names));
    if options.strip_root {
        refuse_clashes(&selected)?;
    }
    Ok((selected, missing))
}

/// Without their roots' paths, things of several roots may come to the same place, one over the other.
fn refuse_clashes(selected: &[Selected]) -> Result<(), RestoreError> {
    let clash = selected.iter().enumerate().find_map(|(at, one)| {
        let behind = selected.iter().skip(at + 1).take_while(|next| next.names.starts_with(&one.names));
        let top = matches!(&one.names[..], [name] if name.is_empty());
        let mut others =
            if top { selected.iter().skip(at + 1).collect() } else { behind.collect::<Vec<_>>() };
        others.retain(|next| next.root != one.root);
        Some((one.root.clone(), others.first()?.root.clone()))
    });
    match clash {
        Some((one, other)) => Err(RestoreError::Clash { one, other }),
        None => Ok(()),
    }
}

fn place(located: Located<'_>, strip_root: bool) -> Selected {
    let Located { root, way } = located;
    let mut names = if strip_root { stripped(root) } else { full(root) };
    names.extend(way.iter().skip(1).map(|entry| entry.name.to_vec()));
    Selected { names, way, root: root.path.clone() }
}

fn full(root: &Root) -> Vec<Vec<u8>> {
    let names: Vec<_> = names(&root.path).unwrap_or_default().into_iter().map(<[u8]>::to_vec).collect();
    if names.is_empty() { vec![Vec::new()] } else { names }
}

fn stripped(root: &Root) -> Vec<Vec<u8>> {
    match root.entry.metadata.kind {
        Kind::Directory => vec![Vec::new()],
        // A root that is a file keeps its name: it needs one.
        _ => full(root).into_iter().next_back().into_iter().collect(),
    }
}
