//! A word of the command line that names a file, kept as it was given: listings print it so, and make the names of
//! what lies below it from it.

use std::ffi::OsStr;

use ninefold::client::{Client, Error, Follow, Node, Sight, Visited, components};
use ninefold::proto::Errno;
use ninefold::transport::{self, Address};

use crate::failure::Usage;
use crate::files::World;
use crate::place::{self, Place, PlaceParser};
use crate::report::Failure;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    pub word: String,
    place: Place,
}

/// For the parser of the command line: as a [`Place`] is parsed, with the word beside it.
#[derive(Clone, Copy, Debug)]
pub struct GivenParser;

impl clap::builder::TypedValueParser for GivenParser {
    type Value = Given;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<Given, clap::Error> {
        let place = PlaceParser.parse_ref(command, arg, value)?;
        // An address is UTF-8; a local path is only ever told of.
        Ok(Given { word: value.to_string_lossy().into_owned(), place })
    }
}

impl clap::builder::ValueParserFactory for Given {
    type Parser = GivenParser;

    fn value_parser() -> GivenParser {
        GivenParser
    }
}

/// The files given to a command that is for files of servers only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    pub word: String,
    pub address: Address,
}

/// All words as files of servers. One that is a file here is wrong use, told before anything is done.
pub fn remote(words: Vec<Given>, command: &str) -> anyhow::Result<Vec<Remote>> {
    let remote = |given: Given| match given.place {
        Place::Remote(address) => Ok(Remote { word: given.word, address }),
        Place::Local(_) => match given.place.remote(command) {
            Err(e) => Err(e),
            Ok(_) => Err(Usage::error(given.word)),
        },
    };
    words.into_iter().map(remote).collect()
}

impl Remote {
    /// The name of what lies at `below` this file, as find(1) makes it: the word, a slash if there is none, the path.
    /// A query stays at the end, so that the whole still names the file wherever its names need no `%HH`.
    pub fn join(&self, below: &[u8]) -> Vec<u8> {
        let (front, query) = self.split();
        let mut name = front.as_bytes().to_vec();
        if !below.is_empty() {
            if self.address.path.is_empty() && matches!(self.address.place, transport::Place::Unix { .. }) {
                name.push(b':');
            }
            if !name.ends_with(b"/") {
                name.push(b'/');
            }
            name.extend_from_slice(below);
        }
        name.extend_from_slice(query.as_bytes());
        name
    }

    /// The same for a message, which is text.
    pub fn join_text(&self, below: &[u8]) -> String {
        String::from_utf8_lossy(&self.join(below)).into_owned()
    }

    /// The address of what lies at `below`, with every byte that needs it as `%HH`.
    pub fn address(&self, below: &[u8]) -> Address {
        let mut address = self.address.clone();
        if !below.is_empty() {
            if !address.path.ends_with(b"/") {
                address.path.push(b'/');
            }
            address.path.extend_from_slice(below);
        }
        address
    }

    /// The word up to its query, and the query with its `?`. The short form `HOST:/PATH` has none.
    fn split(&self) -> (&str, &str) {
        let has_query = self.word.contains("://") || self.word.starts_with("9p+unix:");
        self.word.split_at(self.word.find('?').filter(|_| has_query).unwrap_or(self.word.len()))
    }

    /// What a sorted listing sorts it by: the word, its query last.
    pub fn key(&self) -> (&str, &str) {
        self.split()
    }

    /// The last name of the path; `/` for the root, as find(1) has it.
    pub fn name(&self) -> Vec<u8> {
        components(&self.address.path).ok().and_then(|mut names| names.pop()).unwrap_or_else(|| b"/".to_vec())
    }

    pub fn failed(&self, tried: &'static str, error: Error) -> Failure {
        Failure::new(&self.word, tried, error)
    }

    /// Goes to the file, beside other walks. A slash at the end asks for a directory, through a link if need be, as Linux has it. Once it was waited for, the client that is given must join the node's: what is asked
    /// from then on follows from it.
    pub async fn walk_beside(&self, world: &World, follow: Follow) -> Result<(Node, Client), Failure> {
        let client = world.servers.client(&self.address).await?;
        Ok((self.walk_as(&client.fork(), follow).await?, client))
    }

    /// Goes to the file, and lists it where it is a directory: the first operation on its server, which goes with the handshake.
    /// The client that is given must join the node's, as with [`Remote::walk_beside`].
    pub async fn visit_beside(
        &self,
        world: &World,
        follow: Follow,
        sight: Sight,
    ) -> Result<(Visited, Client), Failure> {
        let path = &self.address.path;
        let directory = place::says_directory(path);
        let follow = if directory { Follow::All } else { follow };
        let visit = async |client: &Client| client.fork().visit(path, follow, sight).await;
        let (client, visited) = world.servers.first(&self.address, visit).await?;
        match visited {
            Ok(visited) if directory && !visited.node.qid().is_dir() => Err(Errno::ENOTDIR.into()),
            Ok(visited) => Ok((visited, client)),
            Err(e) => Err(e),
        }
        .map_err(|e| self.failed("cannot access", e))
    }

    /// The same for who visits one file at a time.
    pub async fn visit(&self, world: &World, follow: Follow, sight: Sight) -> Result<Visited, Failure> {
        let (visited, client) = self.visit_beside(world, follow, sight).await?;
        client.join(visited.node.client());
        Ok(visited)
    }

    async fn walk_as(&self, client: &Client, follow: Follow) -> Result<Node, Failure> {
        place::walk(client, &self.address.path, follow).await.map_err(|e| self.failed("cannot access", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(word: &str) -> Remote {
        Remote { word: word.to_owned(), address: word.parse().unwrap() }
    }

    #[test]
    fn a_name_below_is_put_behind_the_path_and_before_the_query() {
        let cases = [
            ("9p://h", "9p://h/a/b"),
            ("9p://h/", "9p://h/a/b"),
            ("9p://h/x//", "9p://h/x//a/b"),
            ("9p://h/x?dialect=9P2000.u", "9p://h/x/a/b?dialect=9P2000.u"),
            ("9p://h?aname=/x", "9p://h/a/b?aname=/x"),
            ("9p+unix:/s", "9p+unix:/s:/a/b"),
            ("9p+unix:/s?aname=x", "9p+unix:/s:/a/b?aname=x"),
            ("9p+unix:/s:/x", "9p+unix:/s:/x/a/b"),
            ("h:/x?y", "h:/x?y/a/b"),
        ];
        for (word, name) in cases {
            assert_eq!(given(word).join_text(b"a/b"), name);
            assert_eq!(given(word).join_text(b""), word);
            let there: Address = name.parse().unwrap();
            assert!(there.path.ends_with(b"/a/b"), "{name}");
            assert_eq!(given(word).address(b"a/b"), there, "{name}");
        }
    }

    #[test]
    fn the_name_of_a_file_is_the_last_of_its_path() {
        for (word, name) in [("9p://h/a/b", "b"), ("9p://h/a/b/", "b"), ("9p://h", "/"), ("9p://h/%41", "A")] {
            assert_eq!(given(word).name(), name.as_bytes(), "{word}");
        }
    }

    #[test]
    fn a_file_of_this_machine_is_wrong_use() {
        let here = Given { word: "/x".to_owned(), place: Place::Local("/x".into()) };
        assert!(remote(vec![here], "ls").unwrap_err().is::<Usage>());
    }
}
