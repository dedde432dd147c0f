//! What generations need: by their bag lists, quickly, and by walking their trees, exactly.

pub mod references;
pub mod union;

pub use references::{Reached, references};
pub use union::Union;
