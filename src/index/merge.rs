//! Which segments to merge, so that there are few to list and to fetch, and little is written again.

use super::ListedSegment;
use crate::base::id::SegmentId;

/// As many segments as need no merging.
const MANY: usize = 16;
/// As many as are left over at least, when there are too many.
const FEW: usize = 8;
/// Length that a merged segment does not exceed: one is read into memory as a whole.
const LONGEST: u64 = 16 << 20;

/// The segments to merge into one now; none when there are few.
///
/// Those that are half as long as a segment may be are left alone for ever. When there are more than sixteen others, the shortest
/// are merged: as many as are too many above eight, and then each that is not longer than all before it together. So the
/// length of what something lies in about doubles with each merge, and after n nights there are at most sixteen
/// segments besides the long ones, each object having been written again about log2(n) times.
#[must_use]
pub fn which(segments: &[ListedSegment]) -> Vec<SegmentId> {
    let mut short: Vec<ListedSegment> =
        segments.iter().copied().filter(|segment| segment.size < LONGEST / 2).collect();
    if short.len() <= MANY {
        return vec![];
    }
    // By length, then by id: all who see one listing choose the same.
    short.sort_unstable_by_key(|segment| (segment.size, segment.id));
    let surplus = short.len() - FEW;
    let mut together = 0_u64;
    let mut chosen = vec![];
    for segment in short {
        let more = together.saturating_add(segment.size);
        let fits = more <= LONGEST || chosen.len() < 2;
        if !fits || (chosen.len() > surplus && segment.size > together) {
            break;
        }
        together = more;
        chosen.push(segment.id);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn segment(size: u64) -> ListedSegment {
        ListedSegment { id: SegmentId::random(), size }
    }

    #[test]
    fn few_or_long_ones_stay() {
        assert!(which(&(0..16).map(|_| segment(1000)).collect::<Vec<_>>()).is_empty());
        assert!(which(&(0..100).map(|_| segment(LONGEST / 2)).collect::<Vec<_>>()).is_empty());
    }

    #[test]
    fn equal_ones_become_one_and_a_longer_one_stays() {
        let mut segments: Vec<_> = (0..16).map(|_| segment(1000)).collect();
        segments.push(segment(20_000));
        let chosen: BTreeSet<_> = which(&segments).into_iter().collect();
        assert_eq!(chosen, segments[..16].iter().map(|segment| segment.id).collect());
    }

    #[test]
    fn ten_years_of_nights() {
        let mut segments: Vec<ListedSegment> = vec![];
        let (mut added, mut written, mut most) = (0, 0, 0);
        for night in 0..3650_u64 {
            let size = 5_000 + (night * 7919) % 20_000;
            segments.push(segment(size));
            added += size;
            let chosen: BTreeSet<_> = which(&segments).into_iter().collect();
            if !chosen.is_empty() {
                let merged = segments
                    .iter()
                    .filter(|segment| chosen.contains(&segment.id))
                    .map(|segment| segment.size);
                let size = merged.sum();
                assert!(size <= LONGEST);
                written += size;
                segments.retain(|segment| !chosen.contains(&segment.id));
                segments.push(ListedSegment { id: SegmentId::random(), size });
            }
            most = most.max(segments.len());
        }
        assert!(most <= MANY + usize::try_from(added / (LONGEST / 2)).unwrap() + 1, "{most} segments");
        assert!(written < 10 * added, "written again {} times", written / added);
    }
}
