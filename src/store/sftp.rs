//! A store on an SFTP server.
