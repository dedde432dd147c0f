//! The roots of a generation, put together to one tree: each stands where it stood, with plain directories above it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::Entry;
use crate::generation::{Generation, locate};

/// A directory that leads to roots, or is one, or both: a root may stand within another one.
#[derive(Debug, Default)]
pub struct Roots {
    /// What leads on, by name.
    pub below: BTreeMap<Box<[u8]>, Arc<Roots>>,
    /// The root that stands here.
    pub root: Option<Entry>,
}

impl Roots {
    /// Those of a generation.
    #[must_use]
    pub fn of(generation: &Generation) -> Arc<Self> {
        let mut all: Vec<_> = generation
            .roots
            .iter()
            .filter_map(|root| Some((locate::names(&root.path)?, &root.entry)))
            .collect();
        all.sort_by(|(one, _), (next, _)| one.cmp(next));
        Self::from_sorted(&all, 0)
    }

    /// Of those whose paths have the same first `depth` names.
    fn from_sorted(all: &[(Vec<&[u8]>, &Entry)], depth: usize) -> Arc<Self> {
        let mut here = Self::default();
        for group in all.chunk_by(|(one, _), (next, _)| one.get(depth) == next.get(depth)) {
            let Some((names, entry)) = group.first() else { continue };
            match names.get(depth) {
                Some(name) => {
                    let below = Self::from_sorted(group, depth.saturating_add(1));
                    here.below.insert((*name).into(), below);
                }
                None => here.root = Some(Entry { name: Box::default(), ..(*entry).clone() }),
            }
        }
        Arc::new(here)
    }

    /// The names that lead on, in order.
    #[must_use]
    pub fn names(&self) -> Vec<Box<[u8]>> {
        self.below.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{directory, generation};
    use super::*;

    fn shape(roots: &Roots) -> String {
        let below: Vec<_> = roots
            .below
            .iter()
            .map(|(name, below)| format!("{}{}", String::from_utf8_lossy(name), shape(below)))
            .collect();
        format!("{}({})", if roots.root.is_some() { "!" } else { "" }, below.join(" "))
    }

    #[test]
    fn roots_stand_where_they_stood() {
        let of = |paths: &[&str]| {
            let roots = paths.iter().map(|path| (*path, directory(None))).collect();
            shape(&Roots::of(&generation(1, 0, roots)))
        };
        assert_eq!(of(&["/home/ada", "/home/bob", "/etc"]), "(etc!() home(ada!() bob!()))");
        assert_eq!(of(&["/", "/home"]), "!(home!())");
        assert_eq!(of(&["/a", "/a/b/c"]), "(a!(b(c!())))");
        assert_eq!(of(&[]), "()");
    }
}
