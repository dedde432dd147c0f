//! What generations need: by their bag lists, quickly, and by walking their trees, exactly; and what others may take over of it while garbage is
//! being collected.

pub mod custody;
pub mod references;
pub mod union;

pub use custody::{Custody, CustodyError};
pub use references::{Reached, references};
pub use union::Union;
