//! File servers that come with the library.
