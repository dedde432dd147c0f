//! Small whole files, sealed with their own name as context.
