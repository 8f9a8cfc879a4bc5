//! Runs suites and transcripts against any 9P server.
