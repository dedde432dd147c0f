//! What garbage collection has sentenced.
//!
//! Nothing is locked, so nothing can be removed at once: somebody may be about to refer to it. A **list** of bags is published first
//! (`condemned/<id>`); whoever begins to write from then on makes no fresh reference to them. Then it is looked who was writing already, and what they have published
//! since the generations were read: those are the **waits** (`condemned/<id>.waits`), the only ones that can still bring a reference to a bag of the list into the world. When
//! none of them is writing any more, the generations are read again. What none of them needs is **doomed**: that is published, too (`condemned/<id>.doomed`), and only
//! by a collector whose lease is intact, before the first bag is removed. A list is doomed once: whoever sweeps it removes the same bags, however late he comes. The list goes when
//! these bags are gone.
//!
//! A list names three kinds of bags. **Dead** ones no generation needs. **Emptied** ones were copied elsewhere as a whole, so references into them are
//! good for ever (see [`crate::bag::moved`]); **thinned** ones as far as a generation needed them: a reference to the rest of them, made by one of the waits, is looked for before they are doomed.

pub mod format;
pub mod reading;

pub use format::{Doomed, List, Waits};
pub use reading::{CondemnedError, Sentence};
