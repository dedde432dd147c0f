//! An SFTP v3 client that knows nothing of backups.
