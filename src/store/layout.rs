//! Where things lie in a repository.

use super::name::Name;
use crate::base::id::{BagId, ClientId, CollectionId, GenerationId, KeySlotId, SegmentId, TagsId};

/// The directories of a repository, made by `init`; those below `bags` and `generations` when first needed.
pub const DIRECTORIES: [&str; 7] = ["keys", "bags", "index", "sessions", "generations", "condemned", "moved"];

/// Where `fsck` puts what it takes out of the way; made when first needed.
pub const QUARANTINE: &str = "quarantine";

/// The name that a file gets there.
#[must_use]
pub fn quarantined(name: &Name) -> Name {
    Name::join(&[QUARANTINE, &name.as_str().replace('/', ".")])
}

/// The configuration.
#[must_use]
pub fn config() -> Name {
    Name::join(&["config"])
}

/// A top directory, one of [`DIRECTORIES`].
#[must_use]
pub fn directory(name: &str) -> Name {
    Name::join(&[name])
}

/// A key slot.
#[must_use]
pub fn key_slot(id: KeySlotId) -> Name {
    Name::join(&["keys", &id.to_string()])
}

/// The directory of bags whose id begins with this byte.
#[must_use]
pub fn bag_directory(first: u8) -> Name {
    Name::join(&["bags", &format!("{first:02x}")])
}

/// A bag.
#[must_use]
pub fn bag(id: BagId) -> Name {
    Name::join(&["bags", &format!("{:02x}", id.0[0]), &id.to_string()])
}

/// A bag while it is uploaded.
#[must_use]
pub fn bag_part(id: BagId) -> Name {
    bag(id).with_suffix(".part")
}

/// An index segment.
#[must_use]
pub fn segment(id: SegmentId) -> Name {
    Name::join(&["index", &id.to_string()])
}

/// The directory of a client's generations.
#[must_use]
pub fn generations(client: ClientId) -> Name {
    Name::join(&["generations", &client.to_string()])
}

/// A generation record.
#[must_use]
pub fn generation(client: ClientId, id: GenerationId) -> Name {
    Name::join(&["generations", &client.to_string(), &id.to_string()])
}

/// Tags of a generation, beside its record.
#[must_use]
pub fn tags(client: ClientId, id: GenerationId, tags: TagsId) -> Name {
    Name::join(&["generations", &client.to_string(), &format!("{id}.{tags}")])
}

/// A session: the lease file that becomes the generation record.
#[must_use]
pub fn session(client: ClientId, id: GenerationId) -> Name {
    Name::join(&["sessions", &format!("{client}.{id}")])
}

/// The lease file of a session that becomes an index segment.
#[must_use]
pub fn segment_lease(client: ClientId, id: GenerationId, segment: SegmentId) -> Name {
    Name::join(&["sessions", &format!("{client}.{id}.{segment}")])
}

/// A list of bags that garbage collection means to remove.
#[must_use]
pub fn condemned(id: CollectionId) -> Name {
    Name::join(&["condemned", &id.to_string()])
}

/// Who may still refer to the bags of such a list.
#[must_use]
pub fn condemned_waits(id: CollectionId) -> Name {
    condemned(id).with_suffix(".waits")
}

/// Which bags of such a list are removed.
#[must_use]
pub fn condemned_doomed(id: CollectionId) -> Name {
    condemned(id).with_suffix(".doomed")
}

/// Says which key slots there are, where every backup looks anyway. The id is made from theirs.
#[must_use]
pub fn key_mark(id: CollectionId) -> Name {
    condemned(id).with_suffix(KEY_MARK)
}

/// How the names of these end.
pub const KEY_MARK: &str = ".keys";

/// A record of objects that were copied.
#[must_use]
pub fn moved(id: CollectionId) -> Name {
    Name::join(&["moved", &id.to_string()])
}

/// The lease file of a session that becomes the file called `name`.
#[must_use]
pub fn draft_lease(client: ClientId, id: GenerationId, name: &Name) -> Name {
    Name::join(&["sessions", &format!("{client}.{id}.{}", name.as_str().replace('/', "-"))])
}
