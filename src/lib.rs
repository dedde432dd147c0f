//! kitbag keeps generations of your files on a server that runs nothing but `sshd`.
//!
//! Reading order, from the ground up: [`base`] and [`monitor`] are what everybody uses; [`entry`] says what a file
//! is; [`crypto`], [`compress`] and [`chunker`] are pure; [`sftp`] speaks SFTP and knows nothing of backups;
//! [`store`] is named immutable files, wherever they are; [`live`] is the file system that is backed up; [`sealed`],
//! [`bag`], [`condemned`], [`dir`], [`index`], [`generation`] and [`contents`] are the structures of a repository;
//! [`repo`] opens one and hands out its parts; [`reach`] says what generations need; [`backup`], [`restore`], [`verify`],
//! [`forget`], [`gc`], [`fsck`] and [`mount`] are one operation each; [`serve`] is the other side, for those who trust no client;
//! [`cli`] is the only place that prints, reads the
//! environment or knows a flag.

pub mod base;
pub mod monitor;

pub mod chunker;
pub mod compress;
pub mod crypto;
pub mod entry;
pub mod sftp;

pub mod cache;
pub mod live;
pub mod store;

pub mod bag;
pub mod condemned;
pub mod contents;
pub mod dir;
pub mod generation;
pub mod index;
pub mod sealed;

pub mod reach;
pub mod repo;

pub mod backup;
pub mod forget;
pub mod fsck;
pub mod gc;
pub mod look;
pub mod mount;
pub mod restore;
pub mod serve;
pub mod verify;

pub mod cli;
