//! Serve and use 9P file trees.
