//! Directories that are being filled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::site::Site;
use crate::entry::Metadata;
use crate::live::{LiveDir, RawXattr};

/// A directory that is being filled. It gets its metadata when all that stands in it is done: files still under way, and directories whose
/// own turn has not come.
pub struct Node {
    /// The directory.
    pub dir: Arc<LiveDir>,
    parent: Option<Arc<Node>>,
    finish: Option<(Metadata, Vec<RawXattr>)>,
    /// Who is not done with it: the planner, things in it, directories in it.
    open: AtomicUsize,
}

impl Node {
    /// A directory that the planner has just entered, and the metadata that it shall get, if they are known.
    pub fn new(
        dir: Arc<LiveDir>,
        parent: Option<Arc<Self>>,
        finish: Option<(Metadata, Vec<RawXattr>)>,
    ) -> Arc<Self> {
        if let Some(parent) = &parent {
            parent.enter();
        }
        Arc::new(Self { dir, parent, finish, open: AtomicUsize::new(1) })
    }

    /// Something more is to be done in it.
    pub fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Something is done. After the last, the directory is finished, and its parent if it was the last there.
    pub fn leave(self: &Arc<Self>, site: &Site<'_>) {
        let mut node = Arc::clone(self);
        while node.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            if let Some((metadata, xattrs)) = &node.finish
                && let Err(error) = site.target.finish_dir(&node.dir, metadata, xattrs)
            {
                site.lost(&node.dir.path(), error.into());
            }
            match &node.parent {
                Some(parent) => node = Arc::clone(parent),
                None => return,
            }
        }
    }
}

impl Drop for Node {
    /// Lets go of the ancestors one after the other: dropped by recursion, a deep tree would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.parent.take();
        }
    }
}
