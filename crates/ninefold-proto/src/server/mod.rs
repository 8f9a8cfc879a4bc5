//! The server end.
