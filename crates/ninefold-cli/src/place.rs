//! What a word of the command line names: a file here, or one of a server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ninefold::transport::{Address, BadAddress};

use crate::failure::Usage;

/// A file here or there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Local(PathBuf),
    Remote(Address),
}

/// Schemes of addresses; anything else with `://` in it is a local name, however odd.
const SCHEMES: [&str; 4] = ["9p://", "9ps://", "9p+ssh://", "9p+unix:"];

impl FromStr for Place {
    type Err = BadAddress;

    /// An address begins with a scheme, or has a `:/` in front of its first `/` (`HOST:/PATH`); everything else is a
    /// local path. `./` in front makes any word one.
    fn from_str(text: &str) -> Result<Place, BadAddress> {
        let short = text.find(":/").is_some_and(|at| !text[..at].contains('/') && at > 0);
        if short || SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return text.parse().map(Place::Remote);
        }
        Ok(Place::Local(PathBuf::from(text)))
    }
}

/// For the parser of the command line: a local path need not be UTF-8, an address must be.
#[derive(Clone, Copy, Debug)]
pub struct PlaceParser;

impl clap::builder::TypedValueParser for PlaceParser {
    type Value = Place;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<Place, clap::Error> {
        match value.to_str() {
            Some("") => Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, "an empty word names no file\n")),
            Some(_) => Place::from_str.parse_ref(command, arg, value),
            None => Ok(Place::Local(OsString::from(value).into())),
        }
    }
}

impl clap::builder::ValueParserFactory for Place {
    type Parser = PlaceParser;

    fn value_parser() -> PlaceParser {
        PlaceParser
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Local(path) => path.display().fmt(f),
            Place::Remote(address) => address.fmt(f),
        }
    }
}

impl Place {
    /// The address, for commands that have a namesake for files here.
    pub fn remote(&self, command: &str) -> anyhow::Result<&Address> {
        match self {
            Place::Remote(address) => Ok(address),
            Place::Local(path) => Err(Usage::error(format!(
                "'{}' is a file of this machine: use {command}(1), or give a URL like 9p://HOST/PATH or HOST:/PATH",
                path.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_path_name_a_file_of_a_server_and_a_path_a_file_here() {
        for remote in ["9p://h/x", "h:/x", "ken@h:/x", "9p+unix:/s:/x", "[::1]:/x"] {
            assert!(matches!(remote.parse(), Ok(Place::Remote(_))), "{remote}");
        }
        for local in ["x", "/x", "./h:/x", "a/b:/c", "h:x", ":/x", "http:x"] {
            assert!(matches!(local.parse(), Ok(Place::Local(_))), "{local}");
        }
        assert!("9p:/x".parse::<Place>().is_err());
        assert!("http://h/x".parse::<Place>().is_err());
    }
}
