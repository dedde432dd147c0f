//! What a collection writes, and how it is published.

use std::collections::HashSet;

use super::GcError;
use super::repack::Repacked;
use super::segments::{self, Group, Read};
use crate::bag::moved::{self, follow::Record};
use crate::base::id::{BagId, CollectionId, SegmentId};
use crate::condemned::reading::{self, Names};
use crate::condemned::{Doomed, List, Waits};
use crate::crypto::Kind;
use crate::generation::draft::{Blank, Publishing};
use crate::generation::{Draft, Session, SessionError};
use crate::index::Segment;
use crate::monitor::{Monitor, Problem, Severity};
use crate::repo::Repository;
use crate::sealed;
use crate::store::{Class, ErrorKind, Pending, Upload, layout};

/// Files that most collections write, created while it is still being found out whether this one does: that saves a wait.
#[derive(Default)]
struct Blanks {
    list: Option<(CollectionId, Box<dyn Upload>)>,
    doomed: Option<(CollectionId, Blank)>,
    segment: Option<Blank>,
}

/// Drafts of a session, to be published together.
pub struct Drafts<'a> {
    repository: &'a Repository,
    session: &'a Session,
    monitor: &'a dyn Monitor,
    blanks: Blanks,
    dooms: Vec<(CollectionId, Doomed, Draft)>,
    waits: Vec<Draft>,
    /// What is left of each group, if anything is.
    segments: Vec<(Group, Option<Draft>)>,
}

/// What was moved, written and not published yet.
pub struct Moved {
    records: Vec<(Record, Draft)>,
    segment: Option<Draft>,
}

impl Moved {
    /// Publishes it under a lease that is found held: three serial round trips beside those of writing. The records.
    ///
    /// # Errors
    /// When the lease is gone.
    pub fn publish(mut self, session: &Session) -> Result<Vec<Record>, GcError> {
        self.records.iter_mut().try_for_each(|(_, draft)| draft.written())?;
        self.segment.as_mut().map_or(Ok(()), Draft::written)?;
        session.still_held().wait().map_err(|error| session.failure(error))?;
        // First that the bags are there, then what is in them: whoever is killed in between leaves garbage that is found as such.
        let segment = self.segment.map(Draft::publish);
        let records: Vec<_> =
            self.records.into_iter().map(|(record, draft)| (record, draft.publish())).collect();
        let mut published = Vec::new();
        segment.map_or(Ok(true), Publishing::wait)?;
        for (record, publishing) in records {
            publishing.wait()?;
            published.push(record);
        }
        Ok(published)
    }
}

/// What was published.
#[derive(Default)]
pub struct Published {
    /// Lists of which bags are removed now.
    pub dooms: Vec<(CollectionId, Doomed)>,
    /// Segments that others have replaced.
    pub segments: Vec<Group>,
    /// Segments written.
    pub written: u64,
}

impl<'a> Drafts<'a> {
    /// None yet.
    pub fn new(repository: &'a Repository, session: &'a Session, monitor: &'a dyn Monitor) -> Self {
        let (dooms, waits, segments) = (Vec::new(), Vec::new(), Vec::new());
        Self { repository, session, monitor, blanks: Blanks::default(), dooms, waits, segments }
    }

    /// Creates files ahead of need.
    pub fn prepare(&mut self) {
        let id = CollectionId::random();
        let doomed = self.session.blank(Kind::CondemnedDoomed, layout::condemned_doomed(id));
        self.blanks = Blanks {
            list: Some((id, self.list_file(id))),
            doomed: Some((id, doomed)),
            segment: Some(self.session.blank(Kind::Segment, layout::segment(SegmentId::random()))),
        };
    }

    fn list_file(&self, id: CollectionId) -> Box<dyn Upload> {
        self.repository.store().create(&layout::condemned(id).with_suffix(".part"), Class::Control)
    }

    /// Whether there is nothing to publish; what was created ahead of need is given up.
    pub fn settle(&mut self) -> bool {
        self.blanks = Blanks::default();
        self.is_empty()
    }

    /// Whether there is nothing to publish.
    fn is_empty(&self) -> bool {
        self.dooms.is_empty() && self.waits.is_empty() && self.segments.is_empty()
    }

    /// Publishes a list of condemned bags. It proves nothing and does no harm when it comes late, so it needs no lease.
    pub fn list(&mut self, list: &List) -> (CollectionId, Pending<()>) {
        let (id, mut upload) = self.blanks.list.take().unwrap_or_else(|| {
            let id = CollectionId::random();
            (id, self.list_file(id))
        });
        let name = layout::condemned(id);
        let (keys, repository) = (self.repository.keys(), self.repository.id());
        let bytes = sealed::encode(keys, repository, Kind::Condemned, &name, &list.encode());
        let published = match upload.append(bytes) {
            Ok(()) => upload.commit(&name),
            Err(error) => Pending::ready(Err(error)),
        };
        (id, published)
    }

    /// Writes that these bags of a list are removed.
    pub fn doom(&mut self, id: CollectionId, doomed: Doomed) {
        let ahead = self.blanks.doomed.take_if(|(of, _)| *of == id).map(|(_, blank)| blank);
        let blank =
            ahead.unwrap_or_else(|| self.session.blank(Kind::CondemnedDoomed, layout::condemned_doomed(id)));
        let draft = blank.write(&doomed.encode());
        self.dooms.push((id, doomed, draft));
    }

    /// What is written to be removed of a list.
    pub fn doomed(&self, id: CollectionId) -> Option<&Doomed> {
        self.dooms.iter().find(|(of, ..)| *of == id).map(|(_, doomed, _)| doomed)
    }

    /// Does not do away with anything of a list after all.
    pub fn spare(&mut self, id: CollectionId) {
        self.dooms.retain(|(of, ..)| *of != id);
        self.segments.clear();
    }

    /// Writes whom a list waits for.
    pub fn wait(&mut self, id: CollectionId, waits: &Waits) {
        self.waits.push(self.session.draft(
            Kind::CondemnedWaits,
            layout::condemned_waits(id),
            &waits.encode(),
        ));
    }

    /// The bags that are written to be removed.
    pub fn all_doomed(&self) -> HashSet<BagId> {
        self.dooms.iter().flat_map(|(_, doomed, _)| doomed.bags.iter().copied()).collect()
    }

    /// Writes segments anew without the bags that are gone.
    ///
    /// # Errors
    /// What the store says.
    pub fn segments(&mut self, read: &[Read], is_gone: &dyn Fn(BagId) -> bool) -> Result<(), GcError> {
        for group in segments::plan(read, is_gone) {
            if !group.is_left {
                self.segments.push((group, None));
                continue;
            }
            let Some(plaintext) = segments::write(self.repository, read, &group, is_gone)? else { continue };
            let blank =
                self.blanks.segment.take().unwrap_or_else(|| {
                    self.session.blank(Kind::Segment, layout::segment(SegmentId::random()))
                });
            self.segments.push((group, Some(blank.write(&plaintext))));
        }
        Ok(())
    }

    /// Writes what was moved, and a segment that names the new bags. It must be published before anything else.
    pub fn moved(&mut self, repacked: &Repacked) -> Moved {
        let mut records = Vec::new();
        for moves in &repacked.records {
            let id = CollectionId::random();
            let draft = self.session.draft(Kind::Moved, layout::moved(id), &moved::format::encode(moves));
            records.push((Record { id, moves: moves.clone() }, draft));
        }
        let segment = Segment { bags: repacked.bags.clone() };
        let segment = (!segment.bags.is_empty()).then(|| {
            self.session.draft(Kind::Segment, layout::segment(SegmentId::random()), &segment.encode())
        });
        Moved { records, segment }
    }

    /// Waits until all of it is written. Segments for which there is no room are not.
    ///
    /// # Errors
    /// What the store says.
    pub fn written(&mut self) -> Result<(), GcError> {
        for (_, _, draft) in &mut self.dooms {
            draft.written()?;
        }
        for draft in &mut self.waits {
            draft.written()?;
        }
        let mut kept = Vec::new();
        for (group, mut draft) in self.segments.drain(..) {
            match draft.as_mut().map_or(Ok(()), Draft::written) {
                Ok(()) => kept.push((group, draft)),
                Err(SessionError::Store(error)) if error.kind == ErrorKind::NoSpace => {
                    let text = format!("the index could not be written anew ({})", error.detail);
                    self.monitor.problem(Problem::new(Severity::Note, b"index", text));
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.segments = kept;
        Ok(())
    }

    /// Publishes all of it: one serial round trip. The session must have been found held after it was written.
    ///
    /// # Errors
    /// When the lease is gone. What was published until then holds.
    pub fn publish(self) -> Result<Published, GcError> {
        let store = self.repository.store();
        let waits: Vec<_> = self.waits.into_iter().map(Draft::publish).collect();
        let dooms: Vec<_> =
            self.dooms.into_iter().map(|(id, doomed, draft)| (id, doomed, draft.publish())).collect();
        let publish = |(group, draft): (Group, Option<Draft>)| (group, draft.map(Draft::publish));
        let segments: Vec<_> = self.segments.into_iter().map(publish).collect();
        // Behind the dooms: a list that is gone was swept by somebody else, who may have let off what we have not.
        let listed = store.list(&layout::directory("condemned"));
        let mut published = Published::default();
        for one in waits {
            one.wait()?;
        }
        let mut others = Vec::new();
        for (id, doomed, publishing) in dooms {
            if publishing.wait()? {
                published.dooms.push((id, doomed));
            } else {
                others.push(id);
            }
        }
        for (group, publishing) in segments {
            if let Some(publishing) = publishing {
                publishing.wait()?;
                published.written = published.written.saturating_add(1);
            }
            published.segments.push(group);
        }
        let listed = Names::of(&listed.wait()?);
        published.dooms.retain(|(id, _)| listed.lists.contains_key(id));
        if !others.is_empty() {
            // Somebody else was faster, and his word counts.
            let wanted = listed.lists.into_iter().filter(|(id, _)| others.contains(id)).collect();
            let names = Names { lists: wanted, stray: Vec::new() };
            let read = reading::ask(self.repository.cached(), &self.repository.sealing(), &names).wait()?;
            let theirs = read.into_iter().filter_map(|sentence| Some((sentence.id, sentence.doomed?)));
            published.dooms.extend(theirs);
        }
        Ok(published)
    }
}
