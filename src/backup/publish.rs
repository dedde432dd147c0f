//! From a walked tree to a published generation.

use std::sync::Arc;

use crate::bag::source::Source;
use crate::bag::{BagKind, Packer};
use crate::base::time::{Clock, Timestamp};
use crate::dir::format::List;
use crate::dir::reader;
use crate::entry::Reference;
use crate::generation::format::encode_bucket;
use crate::generation::session::SegmentLease;
use crate::generation::{BagCounter, BagListRef, Generation, Root, Session};
use crate::index::{Segment, SegmentBag};
use crate::monitor::Monitor;

use super::roots::Walked;
use super::shelf::Shelf;
use super::tree::{Counted, Tree, count_entry, count_list, known_lists, resolve_entry};
use super::{BackupError, Options};

/// How a backup ended.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The generation: published, unless it says otherwise below.
    pub generation: Generation,
    /// Whether nothing had changed since the generation before.
    pub is_unchanged: bool,
    /// Whether nothing was published, because nothing had changed or because it was a dry run.
    pub is_skipped: bool,
    /// Bags stored.
    pub bags: u64,
    /// Bytes of them.
    pub bag_bytes: u64,
}

/// What publishing takes.
pub struct Maker<'a> {
    /// What is there.
    pub shelf: &'a Shelf,
    /// What stores the rest.
    pub packer: &'a Packer,
    /// The generation before.
    pub source: &'a Source,
    /// Who is told.
    pub monitor: &'a Arc<dyn Monitor>,
}

impl Maker<'_> {
    /// Waits for all pages, bags and segments, then publishes the generation.
    pub fn publish(
        &self,
        mut session: Session,
        tree: Tree,
        walked: Walked,
        former: &[Generation],
        options: &Options,
        (started, clock): (Timestamp, &dyn Clock),
    ) -> Result<Summary, BackupError> {
        let counted = tree.finish();
        if walked.roots.is_empty() {
            return Err(BackupError::NoRoots);
        }
        let Counted { mut bags, mut lists } = counted?;
        self.packer.settle()?;
        let same_as = unchanged(&walked, former);
        let mut counts = walked.counts;
        for tally in walked.tallies {
            bags.merge(&tally.bags);
            lists.extend(tally.lists);
            counts.add(&tally.counts);
        }
        lists.extend(walked.roots.iter().flat_map(|root| known_lists(&root.entry)));
        let roots: Option<Vec<_>> = walked
            .roots
            .into_iter()
            .map(|root| Some(Root { path: root.path, entry: resolve_entry(root.entry)? }))
            .collect();
        let roots = roots.ok_or(BackupError::Stopped)?;
        let bag_list = match same_as {
            Some(generation) => generation.bag_list.clone(),
            None => {
                roots.iter().for_each(|root| count_entry(&mut bags, &root.entry));
                self.count_lists(lists, &mut bags)?;
                self.bag_list(&bags, former)?
            }
        };
        self.monitor.phase("waiting for the repository");
        let is_new = self.shelf.new_bytes() > 0 && !options.dry_run;
        let segment = is_new.then(|| session.segment());
        self.packer.write_out()?;
        let stored = self.shelf.take_written();
        // Those of checkpoints, too, which segments of their own name.
        let (bags, bag_bytes) = self.shelf.bags_written();
        counts.stored_bytes = bag_bytes;
        counts.new_bytes = self.shelf.new_contents();
        let is_unchanged = same_as.is_some();
        let is_skipped =
            options.dry_run || (is_unchanged && options.skip_if_unchanged && options.tags.is_empty());
        let generation = Generation {
            id: session.id(),
            client: options.client.clone(),
            host: options.host.clone(),
            started,
            ended: clock.now(),
            partial: false,
            roots,
            counts,
            options: options.words.clone(),
            tags: options.tags.clone(),
            bag_list,
        };
        // The ends of the bags, the segment and the record travel together; what they are published by, one after the other.
        if !is_skipped {
            session.fill(&generation)?;
        }
        self.publish_bags(segment, stored)?;
        if !is_skipped {
            session.publish()?;
        }
        Ok(Summary { generation, is_unchanged, is_skipped, bags, bag_bytes })
    }

    /// Has a segment name the bags that none names yet.
    pub fn publish_segment(&self, session: &Session) -> Result<(), BackupError> {
        self.packer.write_out()?;
        self.publish_bags(Some(session.segment()), self.shelf.take_written())
    }

    /// Has a segment name these bags, all of which were written, as soon as they are acknowledged.
    fn publish_bags(&self, lease: Option<SegmentLease>, bags: Vec<SegmentBag>) -> Result<(), BackupError> {
        let Some(mut lease) = lease.filter(|_| !bags.is_empty()) else { return Ok(self.packer.quiesce()?) };
        let (id, segment) = (lease.id(), Segment { bags });
        let mut publish = || {
            lease.fill(&segment.encode())?;
            self.packer.quiesce()?;
            Ok::<_, BackupError>(())
        };
        let published = publish().and_then(|()| Ok(lease.publish().wait()?));
        if let Err(error) = published {
            // A checkpoint may fail, and the backup go on: then another segment names them, perhaps once more.
            self.shelf.give_back(segment.bags);
            return Err(error);
        }
        let kept = self.shelf.with_index(|index| {
            index.published(id, &segment.bags);
            index.flush()
        })?;
        if let Err(error) = kept {
            self.shelf.index_not_kept(&error);
        }
        Ok(())
    }

    /// Counts what chunk lists of unchanged files refer to.
    fn count_lists(&self, lists: Vec<Reference>, bags: &mut BagCounter) -> Result<(), BackupError> {
        let mut open = lists;
        while let Some(reference) = open.pop() {
            let list = reader::list(self.source, &reference)?;
            if let List::Parts(parts) = &list {
                open.extend(parts.iter().map(|part| part.list));
            }
            count_list(bags, &list);
        }
        Ok(())
    }

    /// Stores the buckets of the bag list, but for those that a generation before has too.
    pub fn bag_list(&self, bags: &BagCounter, former: &[Generation]) -> Result<BagListRef, BackupError> {
        let (bits, buckets) = bags.buckets();
        let newest = former.iter().max_by_key(|one| one.started);
        let known = newest.map_or(&[][..], |one| &one.bag_list.buckets);
        let mut open = Vec::new();
        for bucket in &buckets {
            let bytes = encode_bucket(bucket);
            let id = self.shelf.id_of(&bytes);
            open.push(match known.iter().find(|reference| reference.id == id) {
                Some(reference) => crate::bag::Placing::Known(*reference),
                None => self.shelf.put(self.packer, BagKind::Tree, &bytes)?,
            });
        }
        self.packer.settle()?;
        let buckets: Option<Vec<_>> = open.iter().map(crate::bag::Placing::get).collect();
        Ok(BagListRef { bits, buckets: buckets.ok_or(BackupError::Stopped)? })
    }
}

/// The generation that has exactly these roots, if none of them has changed since.
fn unchanged<'a>(walked: &Walked, former: &'a [Generation]) -> Option<&'a Generation> {
    let newest = former.iter().max_by_key(|one| (one.started, one.id))?;
    let same = newest.roots.len() == walked.roots.len()
        && newest.roots.iter().zip(&walked.roots).all(|(was, is)| was.path == is.path && is.is_same);
    (same && !newest.partial).then_some(newest)
}
