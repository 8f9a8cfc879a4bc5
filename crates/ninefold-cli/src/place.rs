//! What a word of the command line names: a file here, or one of a server.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use ninefold::client::{Client, Error, Follow, Node};
use ninefold::proto::Errno;
use ninefold::transport::{Address, BadAddress};

use crate::failure::Usage;

/// A file here or there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Local(PathBuf),
    Remote(Address),
}

/// The last name of a path, without slashes behind it; `None` for a root.
fn last_name(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|&b| b != b'/')? + 1;
    path[..end].rsplit(|&b| b == b'/').next()
}

/// Whether a path ends in `.` or `..`, with slashes behind it or without.
pub fn ends_in_dots(path: &[u8]) -> bool {
    matches!(last_name(path), Some(b"." | b".."))
}

/// Whether a path says that it is a directory's: a slash, `.` or `..` at its end, or nothing but the root.
pub fn says_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || ends_in_dots(path) || last_name(path).is_none()
}

/// Goes to a file that a user named. A path that says that it is a directory's goes through a link, as Linux has it, and is
/// ENOTDIR for anything else.
pub async fn walk(client: &Client, path: &[u8], follow: Follow) -> Result<Node, Error> {
    let directory = says_directory(path);
    let node = client.walk(path, if directory { Follow::All } else { follow }).await?;
    if directory && !node.qid().is_dir() { Err(Errno::ENOTDIR.into()) } else { Ok(node) }
}

impl FromStr for Place {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Place, BadAddress> {
        if Address::is_one(text) { text.parse().map(Place::Remote) } else { Ok(Place::Local(PathBuf::from(text))) }
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
    /// A file in this directory.
    pub fn join(&self, name: &[u8]) -> Place {
        match self {
            Place::Local(path) => Place::Local(path.join(OsStr::from_bytes(name))),
            Place::Remote(address) => {
                let separator: &[u8] = if address.path.ends_with(b"/") { b"" } else { b"/" };
                let path = [&address.path[..], separator, name].concat();
                Place::Remote(Address { path, ..address.clone() })
            }
        }
    }

    /// A file in the same directory.
    pub fn beside(&self, name: &[u8]) -> Place {
        match self {
            Place::Local(path) => Place::Local(path.with_file_name(OsStr::from_bytes(name))),
            Place::Remote(address) => {
                let end = address.path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
                let path = [&address.path[..end], name].concat();
                Place::Remote(Address { path, ..address.clone() })
            }
        }
    }

    /// The last name of the path, without slashes behind it; `None` for a root, `.` and `..`.
    pub fn name(&self) -> Option<Vec<u8>> {
        let path = self.path_bytes();
        last_name(path).filter(|_| !ends_in_dots(path)).map(<[u8]>::to_vec)
    }

    /// Whether the path says that it is a directory's: a slash, `.` or `..` at its end.
    pub fn says_directory(&self) -> bool {
        says_directory(self.path_bytes())
    }

    fn path_bytes(&self) -> &[u8] {
        match self {
            Place::Local(path) => path.as_os_str().as_bytes(),
            Place::Remote(address) => &address.path,
        }
    }

    /// The address, for commands that have a namesake for files here.
    pub fn remote(&self, command: &str) -> anyhow::Result<&Address> {
        match self {
            Place::Remote(address) => Ok(address),
            Place::Local(path) => {
                let advice = self.advice(command);
                Err(Usage::error(format!("'{}' is a file of this machine: {advice}", path.display())))
            }
        }
    }

    /// What to do about a local path where one of a server was to be.
    pub fn advice(&self, command: &str) -> String {
        match self.slip() {
            Some(host) => format!("a path of {host} begins with '/': {host}:/PATH"),
            None => format!("use {command}(1), or give a URL like 9p://HOST/PATH or HOST:/PATH"),
        }
    }

    /// The host of a local path like `HOST:dir`, which scp would take for one there.
    pub fn slip(&self) -> Option<&str> {
        let Place::Local(path) = self else { return None };
        let (host, _) = path.to_str()?.split_once(':')?;
        (!host.is_empty() && !host.contains('/')).then_some(host)
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
        for (local, host) in [("h:x", Some("h")), ("ken@h:", Some("ken@h")), ("./h:x", None), ("x", None)] {
            assert_eq!(local.parse::<Place>().unwrap().slip(), host, "{local}");
        }
        assert!("9p:/x".parse::<Place>().is_err());
        assert!("http://h/x".parse::<Place>().is_err());
    }

    #[test]
    fn the_last_name_of_a_path_is_the_file_meant_unless_it_is_a_root_or_dots() {
        let name = |text: &str| text.parse::<Place>().unwrap().name().map(|name| String::from_utf8(name).unwrap());
        for (text, last) in
            [("a/b", "b"), ("b/", "b"), ("h:/a/b//", "b"), ("9p://h/%20", " "), ("9p://h/a?aname=c/d", "a")]
        {
            assert_eq!(name(text).as_deref(), Some(last), "{text}");
        }
        for text in ["/", ".", "a/.", "..", "a/..", "9p://h", "9p://h/", "h:/a/."] {
            assert_eq!(name(text), None, "{text}");
            assert!(text.parse::<Place>().unwrap().says_directory(), "{text}");
        }
        assert!("a/".parse::<Place>().unwrap().says_directory());
        assert!(!"a/b".parse::<Place>().unwrap().says_directory());
    }

    #[test]
    fn a_name_is_joined_to_a_path_with_one_slash() {
        let join = |text: &str| text.parse::<Place>().unwrap().join(b"x y").to_string();
        assert_eq!(join("9p://h"), "9p://h:5640/x%20y");
        assert_eq!(join("9p://h/a"), "9p://h:5640/a/x%20y");
        assert_eq!(join("9p://h/a/?aname=b"), "9p://h:5640/a/x%20y?aname=b");
        assert_eq!(join("a"), "a/x y");
        assert_eq!(join("a/"), "a/x y");
    }
}
