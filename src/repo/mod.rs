//! Opening a repository and handing out its parts.
