//! DIR objects: directories as pages.
