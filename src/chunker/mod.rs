//! FastCDC over pushed bytes, with a gear table that depends on the repository.
