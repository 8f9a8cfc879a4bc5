//! Name spaces.

mod caching;
mod export;
mod export_dirs;
mod export_sync;
mod export_waits;
mod file;
mod links;
mod model;
mod paper;
mod servers;
mod support;
mod unions;
